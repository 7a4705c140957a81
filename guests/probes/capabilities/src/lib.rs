//! Calls every interface of the host and says what it got, one line per call.

use landfall_guest::checkpoints::{self, Reference, Restore};
use landfall_guest::{Agent, Failure, Request, Response, config, progress, repository};

struct Capabilities;

impl Agent for Capabilities {
    fn run(request: Request) -> Result<Response, Failure> {
        let mut lines = Vec::new();
        let mut say = |call: &str, answer: Result<String, landfall_guest::Error>| match answer {
            Ok(text) => lines.push(format!("{call}: ok {text}")),
            Err(error) => lines.push(format!("{call}: {error}")),
        };
        say("config", config::all().map(|values| format!("{values:?}")));
        say("progress", progress::emit("probe.started", &request.input).map(|()| String::new()));
        say("progress kind", progress::emit("Not A Kind", "").map(|()| String::new()));
        say("progress size", progress::emit("probe.large", &"x".repeat(2 << 20)).map(|()| String::new()));
        say("pin", Ok(format!("{:?}", repository::pin().map(|pin| pin.commit))));
        say("status", repository::status(&repository::Compare::default()).map(|changes| format!("{}", changes.len())));
        say("diff", repository::diff(&repository::Compare::since_pin()).map(|bytes| format!("{}", bytes.len())));
        say("read", repository::read("README.md").map(|bytes| format!("{}", bytes.len())));
        say("list", checkpoints::list().map(|list| format!("{}", list.len())));
        say("save", checkpoints::save("half way").map(|saved| saved.id));
        say("save name", checkpoints::save(" half way").map(|saved| saved.id));
        say("stat", checkpoints::stat(&Reference::Start, "/workspace").map(|info| format!("{:?}", info.kind)));
        say("stat id", checkpoints::stat(&Reference::Id("short".to_owned()), "/workspace").map(|info| format!("{:?}", info.kind)));
        say("changes", checkpoints::diff(&Reference::Start, None).map(|changes| format!("{}", changes.len())));
        say("restore", checkpoints::restore(&Reference::Saved("half way".to_owned()), Restore::Workspace).map(|()| String::new()));
        Ok(Response::from(lines.join("\n")))
    }
}

landfall_guest::export!(Capabilities);
