//! `cargo xtask demo`: the main job, on an embedded store. Two turns of an agent on a pinned repository, in two processes that share
//! nothing but the store.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{command, guests, places};

/// The session that the demonstration works on.
const SESSION: &str = "todo-report/demo";

/// Builds what the demo needs, says what it does, and does it.
pub(crate) fn run(rest: &[String]) -> Result<()> {
    let repository = match rest {
        [] => None,
        [flag, url] if flag == "--repository" => Some(url.clone()),
        _ => bail!("usage: cargo xtask demo [--repository URL]"),
    };
    println!("Building the guests and the binary. The first time this takes some minutes.");
    guests::build(&["todo-report", "codemod"].map(str::to_owned))?;
    command::run(Command::new("cargo").args(["build", "--locked", "--workspace", "--all-targets"]).current_dir(places::root()))?;

    // Made anew each time, so that it is in no source file: at the end it is looked for in all that was stored.
    #[expect(clippy::disallowed_methods, reason = "a task for people, not the library")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let token = format!("demo-{}-{:09}", std::process::id(), now.subsec_nanos()) + "-token";
    let demo = Demo { folder: places::target().join("demo"), token };
    let folder = demo.folder.as_path();
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("can't remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("origin"))?;
    let server = match repository {
        Some(_) => None,
        None => Some(Server::start(&demo)?),
    };
    let url = match (&repository, &server) {
        (Some(url), _) => url.clone(),
        (None, Some(server)) => format!("{}landfall.git", server.url),
        (None, None) => bail!("there is no repository"),
    };
    configure(folder, &url, server.is_some())?;

    say("Turn 1. The commit is pinned and imported; the agent looks for TODO and FIXME and writes REPORT.md.");
    demo.landfall("cache-1", &["run", "todo-report", "--session", "demo"])?;
    say(
        "Turn 2, in another process and with an empty cache: it goes on from the checkpoint in the store.\nThis time the agent also looks for SAFETY, and says what is new since turn 1.",
    );
    ensure!(!folder.join("cache-2").exists(), "the second cache isn't empty");
    demo.landfall("cache-2", &["run", "todo-report", "--session", "demo", "--param", "markers=TODO,FIXME,SAFETY"])?;

    say("What happened in the session:");
    demo.landfall("cache-2", &["session", "log", SESSION])?;
    say("What the agent changed since the pin, as a diff that `git apply` accepts (its first lines):");
    let diff = demo.capture(&["session", "diff", SESSION])?;
    first_lines(&diff, 12);
    say("A file of the checkpoint; nothing but the way to it is fetched (its first lines):");
    first_lines(&demo.capture(&["checkpoint", "cat", SESSION, "/workspace/REPORT.md"])?, 12);
    say("Every page and every byte of the checkpoint, checked against its id:");
    demo.landfall("cache-2", &["checkpoint", "verify", SESSION])?;
    say("The checkpoint as a folder with a real .git at the pin, and what git says of it:");
    let opened = folder.join("opened");
    demo.landfall("cache-2", &["checkpoint", "open", SESSION, &opened.to_string_lossy()])?;
    let status = git(&opened, &["status", "--short"])?;
    println!("$ git status --short\n{status}");
    println!("$ git log -1 --format=%H\n{}", git(&opened, &["log", "-1", "--format=%H"])?);

    let ours = demo.capture(&["session", "diff", "--names", SESSION])?;
    let paths = |text: &str| -> Vec<String> {
        let mut paths: Vec<String> = text
            .lines()
            .filter_map(|line| line.trim_start().split_once(' '))
            .map(|(_, path)| path.trim().trim_start_matches("/workspace/").to_owned())
            .collect();
        paths.sort();
        paths
    };
    ensure!(!paths(&status).is_empty(), "git sees no edits in the opened checkpoint");
    ensure!(paths(&status) == paths(&ours), "git sees other edits than the session's:\n{status}\nbut the session has\n{ours}");
    say("git sees exactly the agent's edits. The token that the git server asked for was used by the host alone:");
    let found = Command::new("grep").args(["-rlF", &demo.token]).arg(folder.join("store")).arg(&opened).output()?;
    ensure!(found.stdout.is_empty(), "the token is in {}", String::from_utf8_lossy(&found.stdout));
    println!("it is nowhere in the store and nowhere in the opened folder.");
    println!("\nEverything is in {}: landfall.toml, the store, the opened checkpoint.", folder.display());
    Ok(())
}

fn say(text: &str) {
    println!("\n==> {text}\n");
}

fn first_lines(text: &str, lines: usize) {
    for line in text.lines().take(lines) {
        println!("{line}");
    }
    let rest = text.lines().count().saturating_sub(lines);
    if rest > 0 {
        println!("... {rest} more lines");
    }
}

fn configure(folder: &Path, url: &str, private: bool) -> Result<()> {
    let component = places::components().join("todo-report.wasm");
    let (ca, credential, section) = if private {
        let origin = url.trim_end_matches("/landfall.git");
        let section = format!("\n[credentials.DEMO_TOKEN]\nsource = {{ env = \"DEMO_TOKEN\" }}\naudience = [\"{origin}\"]\n");
        (", ca_file = \"authority.pem\"", "credentials = [\"DEMO_TOKEN\"]\n", section)
    } else {
        ("", "", String::new())
    };
    let text = format!(
        "version = 1\n\n[store]\nurl = \"file://{}\"\n\n[agents.todo-report]\ncomponent = {:?}\nrepository = {{ url = {url:?}{ca} }}\n{credential}{section}",
        folder.join("store").display(),
        component.display().to_string(),
    );
    fs::write(folder.join("landfall.toml"), text).context("can't write landfall.toml")
}

fn binary(name: &str) -> PathBuf {
    places::target().join("debug").join(name)
}

/// Where the demonstration works, and what its git server asks for.
struct Demo {
    folder: PathBuf,
    token: String,
}

impl Demo {
    fn command(&self, cache: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary("landfall"));
        command.current_dir(&self.folder).arg("--cache").arg(self.folder.join(cache)).args(arguments);
        command.env("DEMO_TOKEN", &self.token).stdin(Stdio::null());
        command
    }

    /// Shows a command as a person would type it, and runs it.
    fn landfall(&self, cache: &str, arguments: &[&str]) -> Result<()> {
        println!("$ landfall {}", arguments.join(" ").replace(&format!("{}/", self.folder.display()), ""));
        command::run(&mut self.command(cache, arguments))
    }

    fn capture(&self, arguments: &[&str]) -> Result<String> {
        println!("$ landfall {}", arguments.join(" "));
        command::output(&mut self.command("cache-2", arguments))
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    command::output(Command::new("git").arg("-C").arg(folder).args(arguments))
}

/// The git server, ended with the demo.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(demo: &Demo) -> Result<Self> {
        let folder = &demo.folder;
        say("A private git server on loopback, with this project's own source.");
        let origin = folder.join("origin").join("landfall.git");
        let root = places::root();
        command::run(Command::new("git").args(["clone", "--quiet", "--bare", "--no-hardlinks"]).arg(&root).arg(&origin))?;
        let mut child = Command::new(binary("git-server"))
            .arg(folder.join("origin"))
            .arg(&demo.token)
            .arg(folder.join("authority.pem"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start the git server")?;
        let stdout = child.stdout.take().context("the git server has no stdout")?;
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url)?;
        let url = url.trim().to_owned();
        println!("serving {url}landfall.git");
        Ok(Self { child, url })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its standard input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
