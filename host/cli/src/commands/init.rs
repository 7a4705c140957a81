//! `landfall init`: a config to start from.

use anyhow::Context as _;

use crate::args::{Global, Init};
use crate::exit::Done;
use crate::output;

const STARTER: &str = r#"# What Landfall runs here. Nothing is granted that isn't listed.
version = 1

# [store]
# url = "s3://bucket/prefix"          # default: a folder, .landfall/store, beside this file

[agents.my-agent]
component = "my-agent.wasm"           # a WebAssembly component: world landfall:agent/agent, or any wasi:cli command
# repository = { url = "https://github.com/acme/app", branch = "main" }
# credentials = ["GITHUB_READ_TOKEN"] # read from the environment; the agent never sees it
# config = { model = "..." }          # read by the agent through wasi:config
# args = []                           # for command components

[agents.my-agent.limits]
memory = "512MiB"
turn = "15m"
"#;

pub(crate) fn run(global: &Global, args: &Init) -> anyhow::Result<Done> {
    std::fs::create_dir_all(&args.folder).with_context(|| format!("making the folder {}", args.folder.display()))?;
    let file = args.folder.join("landfall.toml");
    let written = std::fs::File::create_new(&file).and_then(|mut file| std::io::Write::write_all(&mut file, STARTER.as_bytes()));
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(landfall::Error::conflict(format!("{} is there already; it was left as it is", file.display())).into());
        }
        Err(error) => return Err(error).with_context(|| format!("writing {}", file.display())),
    }
    if global.json {
        output::json(&serde_json::json!({ "config": file }));
    } else {
        output::line(&format!("wrote {}", file.display()));
        output::note("next: set `component` to your agent's file, then `landfall run my-agent --input \"...\"`");
    }
    Ok(Done::Ok)
}
