// Checks links: asks for each URL of the input with the standard `fetch`, and says which are broken.
//
// The input is one URL a line; empty lines and those that begin with # are skipped.

export const turn = {
  async run(request) {
    const urls = request.input.split("\n").map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
    if (urls.length === 0) {
      throw { tag: "invalid-request", val: "the input names no link: give one URL a line" };
    }
    const checked = [];
    for (const url of urls) {
      checked.push(await check(url));
    }
    const broken = checked.filter((line) => !line.startsWith("ok ")).length;
    return { output: [...checked, `${urls.length} checked, ${broken} broken`].join("\n") };
  },
};

async function check(url) {
  try {
    const answer = await fetch(url);
    const body = await answer.arrayBuffer();
    const kind = answer.headers.get("content-type") ?? "no content type";
    return `${answer.ok ? "ok" : "broken"} ${answer.status} ${url}: ${body.byteLength} bytes, ${kind}`;
  } catch (error) {
    return `broken ${url}: ${error.message ?? error}`;
  }
}
