//! Edits files and commits as its input says: one command a line, its arguments behind tabs. Answers with one line a command, what was
//! wrong with it among them; only `fail` ends the turn.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use landfall_guest::repository::{self, Base, Compare};
use landfall_guest::{Agent, Error, Failure, Request, Response, checkpoints};

struct Committer;

impl Agent for Committer {
    fn run(request: Request) -> Result<Response, Failure> {
        let mut out = String::new();
        for line in request.input.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            if words == ["fail"] {
                return Err(Failure::other("as the input says"));
            }
            let answer = match command(&words) {
                Ok(answer) => answer,
                Err(error) => format!("error: {error}"),
            };
            let _ = writeln!(out, "{}: {answer}", words.first().copied().unwrap_or_default());
        }
        Ok(Response::from(out))
    }
}

fn place(path: &str) -> PathBuf {
    Path::new("/workspace").join(path)
}

/// Reads `\n` and `\xNN`, so that a line can hold any content.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('n') {
            out.push(b'\n');
            rest = after;
        } else if let Some(byte) =
            rest.strip_prefix('x').and_then(|digits| digits.get(..2)).and_then(|digits| u8::from_str_radix(digits, 16).ok())
        {
            out.push(byte);
            rest = &rest[3..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn io(done: std::io::Result<()>) -> Result<String, Error> {
    Ok(done.map_or_else(|error| format!("io {:?}", error.kind()), |()| String::from("ok")))
}

fn command(words: &[&str]) -> Result<String, Error> {
    Ok(match *words {
        ["write", path, content] => {
            let path = place(path);
            if let Some(parent) = path.parent() {
                let _ = fs::create_dir_all(parent);
            }
            io(fs::write(path, bytes(content)))?
        }
        ["cat", path] => fs::read(place(path))
            .map_or_else(|error| format!("io {:?}", error.kind()), |bytes| format!("{:?}", String::from_utf8_lossy(&bytes))),
        ["remove", path] => io(fs::remove_file(place(path)))?,
        ["rename", from, to] => io(fs::rename(place(from), place(to)))?,
        ["mkdir", path] => io(fs::create_dir_all(place(path)))?,
        #[expect(deprecated, reason = "the only call for a symbolic link that WASI has")]
        ["link", target, path] => io(fs::soft_link(target, place(path)))?,
        ["commit", message, ref paths @ ..] => repository::commit(&String::from_utf8_lossy(&bytes(message)), paths)?,
        ["discard", ref paths @ ..] => repository::discard(paths)?.to_string(),
        ["ignored", path] => repository::is_ignored(path)?.to_string(),
        ["status", ref paths @ ..] => status(&Compare { ignored: true, ..Compare::default() }.at(paths.iter().copied()))?,
        ["status-pin", ref paths @ ..] => status(&Compare { base: Base::Pin, ..Compare::default() }.at(paths.iter().copied()))?,
        ["diff", context, ref paths @ ..] => {
            let compare = Compare { context: context.parse().unwrap_or(3), ..Compare::default() }.at(paths.iter().copied());
            format!("{:?}", String::from_utf8_lossy(&repository::diff(&compare)?))
        }
        ["log"] => {
            let commits = repository::log(100)?;
            let line = |commit: &repository::CommitInfo| {
                format!(
                    "{} {} <{}> {:?}{}",
                    commit.id,
                    commit.author.name,
                    commit.author.email,
                    commit.message,
                    if commit.pinned { " pinned" } else { "" }
                )
            };
            commits.iter().map(line).collect::<Vec<_>>().join(", ")
        }
        ["save", name] => checkpoints::save(name)?.id,
        ["read-pin", path] => format!("{:?}", String::from_utf8_lossy(&repository::read(path)?)),
        _ => String::from("no such command"),
    })
}

fn status(compare: &Compare) -> Result<String, Error> {
    let entries = repository::status(compare)?;
    let line = |entry: &repository::StatusEntry| {
        let old = entry.old_path.as_ref().map_or_else(String::new, |old| format!(" from {old}"));
        let mode =
            |info: &Option<landfall_guest::FileInfo>| info.as_ref().map_or_else(|| String::from("-"), |info| format!("{:o}", info.mode));
        let ignored = if entry.ignored { " ignored" } else { "" };
        format!("{:?} {}{old} {} {}{ignored}", entry.kind, entry.path, mode(&entry.before), mode(&entry.after))
    };
    Ok(entries.iter().map(line).collect::<Vec<_>>().join(", "))
}

landfall_guest::export!(Committer);
