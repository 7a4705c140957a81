//! `landfall checkpoint`: what turns left behind.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use landfall::checkpoint::import::{From, ImportOptions};
use landfall::checkpoint::inspect::{Body, Found, OpenCheckpoint};
use landfall::checkpoint::materialise::MaterialiseOptions as OpenOptions;
use landfall::clock::rfc3339;
use landfall::host::Host;
use landfall::session::selector::Selector;
use landfall::session::view::RunView;
use landfall::workspace::path::display;
use landfall::workspace::stat::Kind;
use serde_json::{Value, json};

use super::session::{self, change_json, print_changes};
use crate::args::{Checkpoint, Global};
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

/// Bytes that `cat` reads at a time.
const CAT_STEP: u64 = 4 << 20;

pub(crate) async fn run(global: &Global, environment: Environment, verb: Checkpoint) -> anyhow::Result<Done> {
    let host = setup::host(global, environment, matches!(verb, Checkpoint::Import { .. })).await?;
    match verb {
        Checkpoint::List(session) => list(global, &host, &session::session_ref(&session)?).await,
        Checkpoint::Show(at) => show(global, &host.open(&at.checkpoint.parse()?).await?),
        Checkpoint::Ls { at, path, recursive } => ls(global, &host.open(&at.checkpoint.parse()?).await?, &path, recursive).await,
        Checkpoint::Cat { at, path } => cat(&host.open(&at.checkpoint.parse()?).await?, &path).await,
        Checkpoint::Diff { before, after, names } => {
            let (before, after) = (before.checkpoint.parse::<Selector>()?, after.map(|after| after.parse::<Selector>()).transpose()?);
            diff(global, &host, &before, after.as_ref(), names, &[]).await
        }
        Checkpoint::Open { at, to, unsafe_links } => {
            let checkpoint = host.open(&at.checkpoint.parse()?).await?;
            let options = OpenOptions { unsafe_links, ..OpenOptions::default() };
            let report = host.materialise(&checkpoint, &to, &options).await?;
            if global.json {
                output::json(
                    &json!({ "checkpoint": checkpoint.checkpoint().id, "folder": to, "files": report.files, "bytes": report.bytes }),
                );
            } else {
                output::line(&format!("{}: {} files, {}, every byte checked", to.display(), report.files, output::size(report.bytes)));
            }
            Ok(Done::Ok)
        }
        Checkpoint::Export { at, output, path } => export(global, &host.open(&at.checkpoint.parse()?).await?, &output, &path).await,
        Checkpoint::Import { from, session, unsafe_links } => {
            let done = import(global, &host, from, &session::session_ref(&session)?, unsafe_links).await;
            host.close().await?;
            done
        }
        Checkpoint::Verify { at, shallow } => verify(global, &host, &at.checkpoint.parse()?, !shallow).await,
    }
}

async fn list(global: &Global, host: &Host, session: &landfall::id::SessionRef) -> anyhow::Result<Done> {
    let checkpoints = host.checkpoints(session).await?;
    if global.json {
        let all: Vec<Value> = checkpoints
            .iter()
            .map(|one| json!({ "checkpoint": one.id, "name": one.name, "run": one.run, "turn": one.turn, "at": rfc3339(one.created) }))
            .collect();
        output::json(&json!({ "session": session.to_string(), "checkpoints": all }));
    } else {
        let mut rows = vec![["TURN", "CHECKPOINT", "AT", "RUN", "NAME"].map(str::to_owned).to_vec()];
        for one in &checkpoints {
            rows.push(vec![
                one.turn.map_or_else(|| "-".to_owned(), |turn| turn.to_string()),
                one.id.to_string(),
                rfc3339(one.created),
                one.run.to_string(),
                one.name.clone().map(|name| output::safe(&name)).unwrap_or_default(),
            ]);
        }
        output::table(&rows);
    }
    Ok(Done::Ok)
}

fn show(global: &Global, checkpoint: &OpenCheckpoint) -> anyhow::Result<Done> {
    let (id, root) = (checkpoint.checkpoint().id, &checkpoint.checkpoint().root);
    if global.json {
        let of = |root: &landfall::workspace::page::Root| json!({ "page": root.page.id, "entries": root.entries, "bytes": root.bytes });
        output::json(&json!({ "checkpoint": id, "workspace": of(&root.workspace), "state": of(&root.state), "pin": root.pin }));
    } else {
        output::line(&format!("checkpoint  {id}"));
        for (name, root) in [("/workspace", &root.workspace), ("/state", &root.state)] {
            output::line(&format!("{name:<11} {} entries, {}, page {}", root.entries, output::size(root.bytes), root.page.id));
        }
        if let Some(pin) = &root.pin {
            output::line(&format!("pin         {} {} {}", pin.url, pin.branch.as_deref().unwrap_or("-"), pin.commit));
        }
    }
    Ok(Done::Ok)
}

async fn ls(global: &Global, checkpoint: &OpenCheckpoint, path: &str, recursive: bool) -> anyhow::Result<Done> {
    let top = path.trim_end_matches('/').to_owned();
    let mut waiting = vec![top.clone()];
    let mut all = Vec::new();
    while let Some(folder) = waiting.pop() {
        let mut below = Vec::new();
        for found in checkpoint.list(if folder.is_empty() { "/" } else { &folder }).await? {
            let path = format!("{folder}/{}", display(&found.name));
            if recursive && found.kind == Kind::Directory {
                below.push(path.clone());
            }
            if global.json {
                all.push(found_json(&path, &found));
            } else {
                let shown = if recursive {
                    output::safe(path.strip_prefix(&top).unwrap_or(&path).trim_start_matches('/'))
                } else {
                    output::safe(&display(&found.name))
                };
                output::line(&row(&found, &shown));
            }
        }
        waiting.extend(below.into_iter().rev());
    }
    if global.json {
        output::json(&json!({ "checkpoint": checkpoint.checkpoint().id, "path": path, "entries": all }));
    }
    Ok(Done::Ok)
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
    }
}

fn row(found: &Found, shown: &str) -> String {
    let target = match &found.body {
        Body::Symlink(target) => format!(" -> {}", output::safe(&display(target))),
        _ => String::new(),
    };
    format!("{}{:03o} {:>12} {} {shown}{target}", letter(found.kind), found.mode, found.size, rfc3339(found.modified))
}

fn found_json(path: &str, found: &Found) -> Value {
    let kind = match found.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
    };
    let mut value = json!({ "path": path, "kind": kind, "mode": format!("{:03o}", found.mode), "size": found.size, "modified": rfc3339(found.modified) });
    if let Body::Symlink(target) = &found.body {
        value["target"] = display(target).into();
    }
    value
}

async fn cat(checkpoint: &OpenCheckpoint, path: &str) -> anyhow::Result<Done> {
    let found = checkpoint.stat(path).await?;
    let mut offset = 0;
    loop {
        let bytes = checkpoint.read_found(path, &found, offset, CAT_STEP).await?;
        if bytes.is_empty() {
            return Ok(Done::Ok);
        }
        offset += bytes.len() as u64;
        match output::bytes(&bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(Done::Ok),
            done => done?,
        }
    }
}

/// Shows how two checkpoints differ; without a second one, what the first changed since its pin.
pub(super) async fn diff(
    global: &Global,
    host: &Host,
    first: &Selector,
    second: Option<&Selector>,
    names: bool,
    paths: &[String],
) -> anyhow::Result<Done> {
    let first = host.open(first).await?;
    let second = match second {
        Some(second) => Some(host.open(second).await?),
        None => None,
    };
    if !names && !global.json {
        output::bytes(&match &second {
            Some(second) => host.diff(&first, second, paths).await?,
            None => host.diff_from_pin(&first, paths).await?,
        })?;
        return Ok(Done::Ok);
    }
    let (before, after) = match second {
        Some(second) => (first, second),
        None => (host.pinned(&first).await?, first),
    };
    let changes = host.changes(&before, &after).await?;
    if global.json {
        output::json(&json!({ "changes": changes.iter().map(change_json).collect::<Vec<_>>() }));
    } else {
        print_changes(&changes);
    }
    Ok(Done::Ok)
}

async fn export(global: &Global, checkpoint: &OpenCheckpoint, to: &Path, path: &str) -> anyhow::Result<Done> {
    if to == Path::new("-") {
        let mut out = tokio::io::stdout();
        landfall::checkpoint::export::export(checkpoint, path, &mut out).await?;
        return Ok(Done::Ok);
    }
    // Beside the target first, so that a file of that name is always a whole archive.
    let mut name = to.file_name().context("the archive's path names no file")?.to_owned();
    name.push(".part");
    let part = to.with_file_name(name);
    let mut out = tokio::fs::File::create(&part).await.with_context(|| format!("{} can't be made", part.display()))?;
    let written = async {
        let done = landfall::checkpoint::export::export(checkpoint, path, &mut out).await?;
        out.sync_all().await?;
        tokio::fs::rename(&part, to).await?;
        anyhow::Ok(done)
    };
    let done = match written.await {
        Ok(done) => done,
        Err(error) => {
            let _ = tokio::fs::remove_file(&part).await;
            return Err(error);
        }
    };
    if global.json {
        output::json(
            &json!({ "checkpoint": checkpoint.checkpoint().id, "file": to, "entries": done.entries, "bytes": done.bytes, "archive": done.archive }),
        );
    } else {
        output::line(&format!("{}: {} entries, {}", to.display(), done.entries, output::size(done.archive)));
    }
    Ok(Done::Ok)
}

async fn import(
    global: &Global,
    host: &Host,
    from: PathBuf,
    session: &landfall::id::SessionRef,
    unsafe_links: bool,
) -> anyhow::Result<Done> {
    let from = if from == Path::new("-") {
        From::Archive(Box::new(std::io::stdin()))
    } else if from.is_dir() {
        From::Folder(from)
    } else {
        From::Archive(Box::new(std::fs::File::open(&from).with_context(|| format!("{} can't be opened", from.display()))?))
    };
    let options = ImportOptions { unsafe_links, ..ImportOptions::default() };
    let (record, done) = host.import(session, from, &options).await?;
    if done.skipped > 0 {
        output::note(&format!("{} folders named .git were left out", done.skipped));
    }
    if global.json {
        output::json(&json!(RunView::of(&record)));
    } else {
        let session = output::safe(&session.to_string());
        output::line(&format!("{session} begins with {} entries, {}", done.entries, output::size(done.bytes)));
    }
    Ok(Done::Ok)
}

async fn verify(global: &Global, host: &Host, selector: &Selector, deep: bool) -> anyhow::Result<Done> {
    let checkpoint = host.open(selector).await?;
    let report = host.verify(&checkpoint, deep).await?;
    let id = checkpoint.checkpoint().id;
    if global.json {
        let damage: Vec<Value> = report
            .damage
            .iter()
            .map(|one| {
                json!({
                    "object": one.object.to_string(),
                    "key": one.key,
                    "frame": one.location.as_ref().map(|at| at.frame),
                    "code": one.error.stable_code(),
                    "why": one.error.chain(),
                    "files": one.files,
                    "files_total": one.files_total,
                })
            })
            .collect();
        output::json(&json!({
            "checkpoint": id,
            "deep": deep,
            "ok": report.is_ok(),
            "entries": report.entries,
            "bytes": report.bytes,
            "pages": report.pages,
            "chunks": report.chunks,
            "packs": report.packs,
            "pack_bytes": report.pack_bytes,
            "damage": damage,
        }));
    } else if report.is_ok() {
        let (entries, bytes) = (report.entries, output::size(report.bytes));
        let read = if deep { "every byte is what its id says" } else { "all are there; content wasn't read" };
        let (pages, packs) = (report.pages, report.packs);
        output::line(&format!("ok: checkpoint {id}: {entries} entries, {bytes}, in {pages} pages and {packs} packs: {read}"));
    } else {
        for one in &report.damage {
            output::line(&format!("damaged: {}: {}", one.object, one.error.chain()));
            if let Some(key) = &one.key {
                output::line(&format!("  in {key}"));
            }
            for file in &one.files {
                output::line(&format!("  touches {}", output::safe(file)));
            }
            if one.files_total > one.files.len() as u64 {
                output::line(&format!("  and {} more", one.files_total - one.files.len() as u64));
            }
        }
    }
    Ok(if report.is_ok() { Done::Ok } else { Done::Failed })
}
