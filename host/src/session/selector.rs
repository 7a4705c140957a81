//! How people name a checkpoint: by a run, or by a session and what of it.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::id::{RunId, SessionName, SessionRef};

/// A checkpoint as a person names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector {
    /// What a run left behind.
    Run(RunId),
    /// The head of a session: `AGENT/SESSION`.
    Head(SessionRef),
    /// What the turn with this number left behind: `AGENT/SESSION@3`.
    Turn(SessionRef, u64),
    /// A named checkpoint of a session: `AGENT/SESSION@NAME`.
    Saved(SessionRef, String),
}

/// The session of an agent that is named alone.
pub const DEFAULT_SESSION: &str = "default";

/// Reads `AGENT/SESSION`, or `AGENT` for its session `default`.
///
/// # Errors
/// `Usage` when a name breaks its rules.
pub fn parse_session(text: &str) -> Result<SessionRef> {
    let (agent, session) = text.split_once('/').unwrap_or((text, DEFAULT_SESSION));
    Ok(SessionRef { agent: agent.parse()?, session: session.parse::<SessionName>()? })
}

impl FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Ok(run) = text.parse() {
            return Ok(Self::Run(run));
        }
        let Some((session, what)) = text.rsplit_once('@') else {
            return Ok(Self::Head(parse_session(text)?));
        };
        let session = parse_session(session)?;
        if what.is_empty() {
            return Err(Error::usage(format!("{text:?} names nothing after @"))
                .hint("AGENT/SESSION@3 is what turn 3 left behind; AGENT/SESSION@NAME is a named checkpoint"));
        }
        Ok(match what.parse() {
            Ok(turn) => Self::Turn(session, turn),
            Err(_) => Self::Saved(session, what.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_told_apart() {
        let session = |agent: &str, session: &str| SessionRef { agent: agent.parse().unwrap(), session: session.parse().unwrap() };
        let run = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(run.parse::<Selector>().unwrap(), Selector::Run(run.parse().unwrap()));
        assert_eq!("bot".parse::<Selector>().unwrap(), Selector::Head(session("bot", "default")));
        assert_eq!("bot/fix/12".parse::<Selector>().unwrap(), Selector::Head(session("bot", "fix/12")));
        assert_eq!("bot/fix@12".parse::<Selector>().unwrap(), Selector::Turn(session("bot", "fix"), 12));
        assert_eq!("bot@before".parse::<Selector>().unwrap(), Selector::Saved(session("bot", "default"), "before".into()));
        assert!("bot@".parse::<Selector>().is_err() && "/x".parse::<Selector>().is_err());
    }
}
