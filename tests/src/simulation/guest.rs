//! The agent under simulation: a body in Rust in place of a component. It appends its run to a log in `/state`, so that a lost or doubled turn
//! shows in the content of every later checkpoint; what else it does, its input says.

use std::sync::Arc;
use std::time::Duration;

use landfall::capability::refusal::Refusal;
use landfall::clock::Clock as _;
use landfall::component::{Body, Call, Cancel, GuestFailure, GuestResponse, Invoked, Usage};
use landfall::id::{Digest, RunId};
use landfall::policy::grants::Grants;
use landfall::workspace::{Filesystem, Follow, FsError, OpenHow};

use super::World;
use super::timeline::MachineClock;

/// What a turn is to do: the input's words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// How long it thinks before it writes anything, in milliseconds.
    pub before: u64,
    /// How long it thinks after that.
    pub after: u64,
    /// The name under which it saves a checkpoint in between.
    pub save: Option<String>,
    /// Whether it fails in the end.
    pub fails: bool,
    /// Bytes of the file that it writes.
    pub bytes: u64,
}

impl Script {
    /// Writes it as an input text.
    #[must_use]
    pub fn input(&self) -> String {
        format!("{} {} {} {} {}", self.before, self.after, self.save.as_deref().unwrap_or("-"), self.fails, self.bytes)
    }

    fn parse(input: &str) -> Option<Self> {
        let mut words = input.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (before, after) = (number()?, number()?);
        let save = words.next().filter(|name| *name != "-").map(str::to_owned);
        Some(Self { before, after, save, fails: words.next()? == "true", bytes: words.next()?.parse().ok()? })
    }
}

/// The body, in one process.
pub struct Guest {
    /// The world it is in.
    pub world: Arc<World>,
    /// Its machine's clock.
    pub clock: MachineClock,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guest")
    }
}

/// Returns the line by which a run shows in the log.
#[must_use]
pub fn line(run: RunId) -> String {
    format!("{run}\n")
}

impl Guest {
    async fn work(&self, call: &Call, script: &Script) -> landfall::Result<Result<(), GuestFailure>> {
        let run = call.request.run;
        self.clock.sleep(Duration::from_millis(script.before)).await;
        append(&call.workspace.state, b"log", line(run).as_bytes()).await?;
        let content = vec![b'x'; usize::try_from(script.bytes).unwrap_or(0)];
        append(&call.workspace.workspace, format!("file-{}", script.bytes % 7).as_bytes(), &content).await?;
        if let Some(name) = &script.save {
            // Any other refusal is an answer like any other; the turn goes on.
            if let Err(Refusal::Host(error)) = call.checkpoints.save(name, &call.workspace).await {
                return Err(error);
            }
        }
        self.clock.sleep(Duration::from_millis(script.after)).await;
        Ok(if script.fails { Err(GuestFailure::Other(String::from("as it was told"))) } else { Ok(()) })
    }
}

async fn append(files: &Filesystem, path: &[u8], data: &[u8]) -> Result<(), FsError> {
    let how = OpenHow { create: true, write: true, ..OpenHow::default() };
    files.root().open_at(path, Follow::Yes, how).await?.append(data).map(drop)
}

#[async_trait::async_trait]
impl Body for Guest {
    fn digest(&self) -> Digest {
        Digest::from_bytes([7; 32])
    }

    fn check_granted(&self, _: &Grants) -> landfall::Result<()> {
        Ok(())
    }

    async fn invoke(&self, call: Call, cancel: &Cancel) -> landfall::Result<Invoked> {
        *self.world.oracle().begun.entry(call.request.run).or_default() += 1;
        let Some(script) = Script::parse(&call.request.input) else {
            return Ok(Invoked { result: Err(GuestFailure::InvalidRequest(call.request.input)), usage: Usage::default() });
        };
        let done = tokio::select! {
            biased;
            done = self.work(&call, &script) => done?,
            reason = cancel.cancelled() => Err(GuestFailure::Cancelled(reason)),
        };
        let result = done.map(|()| GuestResponse { output: call.request.run.to_string().into() });
        Ok(Invoked { result, usage: Usage::default() })
    }
}
