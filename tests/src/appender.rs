//! A session whose agent adds a line to its log in each turn: whatever a store does, the log holds whole turns and no others.

use landfall::checkpoint::import::{From, ImportOptions};
use landfall::config::Agent;
use landfall::host::Host;
use landfall::id::SessionRef;

use crate::turns::{Turns, agent};

/// The line. It is long enough not to lie in the entry of its file.
pub const LINE: &str = "a line that is long enough not to lie in the entry of its file: 0123456789 0123456789\n";
/// The session's name.
pub const SESSION: &str = "bot/s";

/// Makes a host with a cache of its own, whose agent adds the line in each turn.
///
/// # Errors
/// As [`Turns::host`].
pub fn host(turns: &Turns, cache: &str) -> landfall::Result<Host> {
    let args = ["append", "/workspace/log", LINE].map(str::to_owned);
    turns.host(cache, &[("bot", Agent { args: args.to_vec(), ..agent("fs-std") })])
}

/// Reads a session's name.
///
/// # Errors
/// `Usage`.
pub fn name(text: &str) -> landfall::Result<SessionRef> {
    landfall::session::selector::parse_session(text)
}

/// Begins the session with a log of one line and some files beside it.
///
/// # Errors
/// As the import.
pub async fn bring(host: &Host) -> landfall::Result<()> {
    let local = |error: std::io::Error| landfall::Error::internal("no folder for the test's files").source(error);
    let folder = tempfile::tempdir().map_err(local)?;
    std::fs::write(folder.path().join("log"), LINE).map_err(local)?;
    for n in 0..10 {
        std::fs::write(folder.path().join(format!("f{n}")), format!("file {n} ").repeat(200)).map_err(local)?;
    }
    host.import(&name(SESSION)?, From::Folder(folder.path().to_owned()), &ImportOptions::default()).await.map(drop)
}

/// Runs a turn, which has to complete when it runs at all.
///
/// # Errors
/// As the turn.
///
/// # Panics
/// When the agent failed: nothing here is wrong with it.
pub async fn turn(host: &Host) -> landfall::Result<()> {
    let record = crate::turns::run(host, "bot", "s", "").await?;
    assert!(record.is_completed(), "{record:?}");
    Ok(())
}

/// Counts the lines of the log.
///
/// # Errors
/// As opening and reading.
///
/// # Panics
/// When the log holds a part of a turn.
pub async fn lines(host: &Host) -> landfall::Result<usize> {
    let bytes = host.open(&SESSION.parse()?).await?.read("/workspace/log", 0, 1 << 20).await?;
    assert_eq!(bytes.len() % LINE.len(), 0, "never a part of a turn");
    Ok(bytes.len() / LINE.len())
}
