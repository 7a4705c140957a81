//! `landfall session patch`: what a session hands back.

use std::path::Path;

use anyhow::Context as _;
use landfall::host::{Host, Patch, PatchOptions};
use landfall::id::SessionRef;
use landfall::session::selector::Selector;
use serde_json::json;

use crate::args::Global;
use crate::exit::Done;
use crate::output;

/// Prints a session's patch, or writes it into a folder.
pub(super) async fn patch(
    global: &Global,
    host: &Host,
    session: &SessionRef,
    folder: Option<&Path>,
    options: &PatchOptions,
) -> anyhow::Result<Done> {
    let checkpoint = host.open(&Selector::Head(session.clone())).await?;
    let (files, uncommitted) = match host.patch(&checkpoint, options).await? {
        Patch::Series { mails, uncommitted } => (mails.into_iter().map(|mail| (mail.name, mail.bytes)).collect::<Vec<_>>(), uncommitted),
        Patch::One(patch) if patch.is_empty() => (Vec::new(), 0),
        Patch::One(patch) => (vec![(String::from("session.patch"), patch.to_vec())], 0),
    };
    if uncommitted > 0 {
        output::note(&format!("{uncommitted} paths aren't committed and so aren't in the series: --uncommitted gives them as one patch"));
    }
    if files.is_empty() {
        output::note("nothing differs from the pinned commit");
    }
    let Some(folder) = folder else {
        if global.json {
            let files: Vec<_> = files.iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes.len() })).collect();
            output::json(&json!({ "session": session.to_string(), "patches": files, "uncommitted": uncommitted }));
            return Ok(Done::Ok);
        }
        for (_, bytes) in &files {
            output::bytes(bytes)?;
        }
        return Ok(Done::Ok);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    let mut written = Vec::new();
    for (name, bytes) in &files {
        let path = folder.join(name);
        // Never over a file that is there.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("{} can't be made", path.display()))?;
        std::io::Write::write_all(&mut file, bytes).with_context(|| format!("{} can't be written", path.display()))?;
        written.push(path);
    }
    if global.json {
        output::json(&json!({ "session": session.to_string(), "patches": written, "uncommitted": uncommitted }));
    } else {
        for path in &written {
            output::line(&path.display().to_string());
        }
    }
    Ok(Done::Ok)
}
