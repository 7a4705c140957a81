//! What an import costs, beside `git clone --depth 1` of the same repository from the same server in the same run, and its peak memory in a
//! process of its own; what a second session costs; what a status and a diff cost after ten edits. Reports, asserts nothing.
//!
//! `cargo bench -p landfall-tests --bench repository`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use landfall::clock::SystemClock;
use landfall::random::SystemRandom;
use landfall::repository::base::Base;
use landfall::repository::checkout::TreeLimits;
use landfall::repository::diff::{DiffOptions, patch_of};
use landfall::repository::imported::{Imported, Repositories};
use landfall::repository::remote::{Git, RemoteOptions, Revision};
use landfall::repository::status::{StatusOptions, status};
use landfall::repository::url::RepositoryUrl;
use landfall::store::Store;
use landfall::workspace::memory::MemoryObjects;
use landfall::workspace::page::{Entry, Node, Root};
use landfall::workspace::{list, tree};
use landfall_tests::git_server::{GitServer, TestRepository, git_command};

#[expect(clippy::print_stdout, reason = "a benchmark's output")]
fn say(text: &str) {
    println!("{text}");
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(at) = arguments.iter().position(|argument| argument == "child") {
        return runtime.block_on(child(&arguments[at + 1], Path::new(&arguments[at + 2]), Path::new(&arguments[at + 3])));
    }
    runtime.block_on(parent())
}

/// Lines of words that compress about as code does.
fn text(seed: u64, bytes: usize) -> String {
    const WORDS: [&str; 16] =
        ["fn", "let", "match", "return", "value", "index", "(", ")", "{", "}", "=>", "self", "Result", "error", "0x1f", ";"];
    let (mut state, mut text) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, String::new());
    while text.len() < bytes {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let draw = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        let word = WORDS[usize::try_from(draw >> 60).unwrap_or(0)];
        let _ = write!(text, "{word}{}", if draw >> 40 & 7 == 0 { format!(" {:x}\n", draw & 0xffff) } else { String::from(" ") });
    }
    text.push('\n');
    text
}

async fn parent() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let served = folder.path().join("served");
    std::fs::create_dir(&served)?;
    let files = TestRepository::create(&served, "files.git")?;
    for number in 0..20_000u64 {
        files.write(format!("src/{:02}/{:02}/file-{number}.rs", number % 50, number / 50 % 40), text(number, 4_100))?;
    }
    files.commit("20,000 files")?;
    let large = TestRepository::create(&served, "large.git")?;
    let mut noise = Vec::new();
    let mut state = 1u64;
    while noise.len() < 100 << 20 {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        noise.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    large.write("large.bin", noise)?;
    large.commit("100 MiB")?;
    // Over clear text, so that git needs no certificate: both sides pay the same.
    let server = GitServer::start_plain(&served).await?;
    for name in ["files.git", "large.git"] {
        let url = server.url(name);
        let (cache, store) = (folder.path().join(format!("{name}.cache")), folder.path().join(format!("{name}.store")));
        let child = tokio::process::Command::new(std::env::current_exe()?)
            .args(["child", &url, cache.to_str().context("path")?, store.to_str().context("path")?])
            .output()
            .await?;
        anyhow::ensure!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        say(&format!("{name}\n{}", String::from_utf8_lossy(&child.stdout).trim_end()));
        let target = folder.path().join(format!("{name}.clone"));
        let (url, at) = (url.clone(), target.clone());
        let begun = Instant::now();
        let cloned =
            tokio::task::spawn_blocking(move || git_command(Path::new("/")).args(["clone", "-q", "--depth", "1", &url]).arg(at).status())
                .await??;
        anyhow::ensure!(cloned.success(), "git clone");
        say(&format!("  git clone --depth 1, with checkout  {:>8.0} ms", millis(begun)));
    }
    edits().await
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Imports one repository into a store of its own, and says how long it took and what it held.
async fn child(url: &str, cache: &Path, store: &Path) -> Result<()> {
    let options = RemoteOptions { allow_http_loopback: true, ..RemoteOptions::default() };
    let git = Git::new(options, Arc::new(SystemClock));
    let url = RepositoryUrl::parse(url)?;
    let store = Store::open(
        &format!("file://{}", store.display()),
        &landfall::store::Options::default(),
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    )
    .await?;
    let repositories = Repositories::new(git, store, PathBuf::from(cache), TreeLimits::default());
    let before = peak();
    let begun = Instant::now();
    let access = repositories.git().resolve(&url, None, &Revision::Default).await?;
    let resolved = millis(begun);
    let imported = repositories.ensure_imported(&access, None).await?;
    say(&format!(
        "  first session: resolve and import   {:>8.0} ms (resolve {resolved:.0} ms), {} entries",
        millis(begun),
        imported.workspace.entries
    ));
    let begun = Instant::now();
    let access = repositories.git().resolve(&url, None, &Revision::Default).await?;
    let resolved = millis(begun);
    repositories.ensure_imported(&access, None).await?;
    say(&format!("  second session                      {:>8.1} ms (of which resolve {resolved:.1} ms)", millis(begun)));
    say(&format!("  peak memory of the process          {:>8.1} MiB ({before:.1} before)", peak()));
    Ok(())
}

/// The peak resident set of this process in MiB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap_or(0.0) / 1024.0
}

/// Ten edits in 100,000 files, everything in memory.
async fn edits() -> Result<()> {
    let mut objects = MemoryObjects::new();
    let source = objects.clone();
    let mut top = BTreeMap::new();
    for folder in 0..1_000u32 {
        let mut entries = BTreeMap::new();
        for number in 0..100u32 {
            entries.insert(
                name(&format!("file-{number}")),
                Some(file(&mut objects, &format!("file-{number}"), &text(u64::from(folder * 100 + number), 300)).await?),
            );
        }
        let page = tree::update(&source, &mut objects, None, entries).await?;
        let name = name(&format!("folder-{folder}"));
        top.insert(name.clone(), Some(Entry { name, mode: 0o755, mtime: 0, node: Node::Directory(page) }));
    }
    let page = tree::update(&source, &mut objects, None, top).await?;
    let bytes = total(&source, &page).await?;
    let root = Root { page, links: None, entries: 101_000, bytes };
    let blobs = tree::update(&source, &mut objects, None, BTreeMap::new()).await?;
    let blobs = Root { page: blobs, links: None, entries: 0, bytes: 0 };
    let imported = Imported {
        url: String::from("https://example.com/a"),
        commit: "0123456789012345678901234567890123456789".parse()?,
        tree: String::from("0123456789012345678901234567890123456789"),
        time: 0,
        workspace: root.clone(),
        git: blobs.clone(),
        blobs,
        attributes: false,
        warnings: landfall::repository::import::Warnings::default(),
        dropped: false,
    };
    let mut top = BTreeMap::new();
    for folder in (0..1_000u32).step_by(100) {
        let folder_name = name(&format!("folder-{folder}"));
        let old = tree::lookup(&source, &root.page, &folder_name).await?.context("folder")?;
        let Node::Directory(old) = old.node else { anyhow::bail!("no directory") };
        let changes =
            BTreeMap::from([(name("file-50"), Some(file(&mut objects, "file-50", &text(u64::from(folder) + 7_000_000, 300)).await?))]);
        let page = tree::update(&source, &mut objects, Some(&old), changes).await?;
        top.insert(folder_name.clone(), Some(Entry { name: folder_name, mode: 0o755, mtime: 1, node: Node::Directory(page) }));
    }
    let page = tree::update(&source, &mut objects, Some(&root.page), top).await?;
    let bytes = total(&source, &page).await?;
    let current = Root { page, links: None, entries: 101_000, bytes };
    let mut best = (Duration::MAX, Duration::MAX, 0, 0);
    for _ in 0..20 {
        let begun = Instant::now();
        let changes = status(&source, &Base::pin(&imported), &current, &StatusOptions::default()).await?;
        let first = begun.elapsed();
        let begun = Instant::now();
        let patch = patch_of(&source, &Base::pin(&imported), &current, &changes, &DiffOptions::default()).await?;
        best = (best.0.min(first), best.1.min(begun.elapsed()), changes.len(), patch.len());
    }
    say(&format!(
        "10 edits in 100,000 files\n  status {:.2} ms ({} changes), patch {:.2} ms ({} bytes); best of 20",
        best.0.as_secs_f64() * 1e3,
        best.2,
        best.1.as_secs_f64() * 1e3,
        best.3
    ));
    Ok(())
}

fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn file(objects: &mut MemoryObjects, called: &str, text: &str) -> Result<Entry> {
    let content = list::build(objects, None, text.as_bytes()).await?;
    Ok(Entry { name: name(called), mode: 0o644, mtime: 0, node: Node::File { size: text.len() as u64, content } })
}

async fn total(source: &MemoryObjects, top: &landfall::workspace::page::PageLink) -> Result<u64> {
    let mut bytes = 0;
    for folder in tree::list(source, top).await? {
        let Node::Directory(page) = folder.node else { continue };
        for entry in tree::list(source, &page).await? {
            if let Node::File { size, .. } = entry.node {
                bytes += size;
            }
        }
    }
    Ok(bytes)
}
