//! What the agent remembers from one turn to the next.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use landfall_guest::Failure;
use serde::{Deserialize, Serialize};

use crate::find::Todo;

/// The version of the file's form.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Memory {
    version: u32,
    todos: Vec<Todo>,
}

/// Returns what the last turn found; none in the first turn, and after a turn of another version of this agent.
pub(crate) fn load(state: &Path) -> Result<Option<Vec<Todo>>, Failure> {
    let bytes = match fs::read(state.join("todos.json")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::other(format!("can't read what the last turn found: {error}"))),
    };
    let memory = serde_json::from_slice::<Memory>(&bytes).ok().filter(|memory| memory.version == VERSION);
    Ok(memory.map(|memory| memory.todos))
}

/// Remembers what this turn found.
pub(crate) fn save(state: &Path, todos: &[Todo]) -> Result<(), Failure> {
    let memory = Memory { version: VERSION, todos: todos.to_vec() };
    let mut json = serde_json::to_string_pretty(&memory).map_err(Failure::other)?;
    json.push('\n');
    crate::write_if_changed(&state.join("todos.json"), &json)
}
