//! Commits of an agent: what real git says of them, wherever the session goes on, and what an agent can't do with them.

use std::path::{Path, PathBuf};

use landfall::checkpoint::materialise::MaterialiseOptions;
use landfall::config::{Agent, Identity};
use landfall::host::{Host, Patch, PatchOptions};
use landfall::session::record::{RunRecord, Status, Text};
use landfall::session::selector::Selector;
use landfall_tests::git_server::{TestRepository, git_command, run as git};
use landfall_tests::turns::{OnRepository, Turns, run};

struct World {
    on: OnRepository,
}

impl World {
    async fn new() -> Self {
        Self { on: OnRepository::new(Turns::new().unwrap()).await.unwrap() }
    }

    fn host(&self, cache: &str) -> Host {
        let mut agent = self.on.agent("committer");
        agent.repository.as_mut().unwrap().author = Some(Identity::new("Ada L. Ünder", "ada@example.com").unwrap());
        self.on.turns.host(cache, &[("bot", agent), ("other", Agent::of_component("none"))]).unwrap()
    }

    async fn open(&self, host: &Host, name: &str) -> PathBuf {
        let checkpoint = host.open(&head()).await.unwrap();
        let folder = self.on.turns.folder.path().join(name);
        host.materialise(&checkpoint, &folder, &MaterialiseOptions::default()).await.unwrap();
        folder
    }

    /// A clone of the pin's branch, without the session.
    fn checkout(&self, name: &str) -> PathBuf {
        let folder = self.on.turns.folder.path().join(name);
        git(
            self.on.turns.folder.path(),
            &["clone", "-q", "-b", "main", self.on.repository.bare().to_str().unwrap(), folder.to_str().unwrap()],
        )
        .unwrap();
        folder
    }

    async fn patch(&self, host: &Host, options: &PatchOptions) -> Patch {
        host.patch(&host.open(&head()).await.unwrap(), options).await.unwrap()
    }
}

fn head() -> Selector {
    "bot/s".parse().unwrap()
}

fn said(record: &RunRecord) -> Vec<String> {
    assert_eq!(record.status, Status::Completed, "{record:?}");
    match &record.output {
        Some(Text::Inline(text)) => text
            .lines()
            .map(|line| line.split_once(": ").map_or_else(String::new, |(_, answer)| answer.replace("StatusKind::", "")))
            .collect(),
        other => panic!("no inline output: {other:?}"),
    }
}

async fn turn(host: &Host, script: &str) -> Vec<String> {
    said(&run(host, "bot", "s", script).await.unwrap())
}

/// Applies a series with the real `git am` and returns its subjects, oldest first.
fn am(checkout: &Path, patch: &Patch) -> usize {
    let Patch::Series { mails, .. } = patch else { panic!("no series: {patch:?}") };
    let mailbox = checkout.with_extension("mbox");
    std::fs::write(&mailbox, mails.iter().flat_map(|mail| mail.bytes.clone()).collect::<Vec<u8>>()).unwrap();
    git(checkout, &["am", "-q", mailbox.to_str().unwrap()]).unwrap();
    mails.len()
}

fn base(repository: &TestRepository) -> String {
    repository.write("README", "hello\n").unwrap();
    repository.write("src/lib.rs", (1..=40).map(|n| format!("line {n}\n")).collect::<String>()).unwrap();
    repository.write("src/deep/er/x", "x\n").unwrap();
    repository.write("data.bin", [0, 1, 2, 3, 255, 0]).unwrap();
    repository.write("dos.txt", "one\r\ntwo\r\n").unwrap();
    repository.write(".gitignore", "*.log\n/target/\n!keep.log\n").unwrap();
    repository.write("old/.gitignore", "tmp\n").unwrap();
    repository.write("gone", "gone\n").unwrap();
    repository.write("tool", "#!/bin/sh\n").unwrap();
    repository.git(&["add", "-A"]).unwrap();
    repository.git(&["update-index", "--chmod=+x", "tool"]).unwrap();
    repository.commit_index("base").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_go_on_in_the_next_turn_on_another_host_and_git_agrees_with_all_of_it() {
    let world = World::new().await;
    let pin = base(&world.on.repository);
    let first = world.host("one");
    let lines = turn(
        &first,
        "write\tREADME\thello\\nworld\\n\nwrite\tsrc/new.rs\tfn main() {}\\n\nwrite\tbuild.log\tnoise\\n\nwrite\ttarget/out\tnoise\\n\nremove\tgone\nrename\tdata.bin\tdata2.bin\nwrite\ttool\t#!/bin/sh\\necho\\n\nstatus\nignored\tbuild.log\nignored\tkeep.log\nignored\ttarget/\nignored\told/tmp\ncommit\tFirst: größer\\n\\nA body.\\n--- not the end\\nFrom here on\\n\nstatus\nlog",
    )
    .await;
    assert_eq!(
        lines[7],
        "Modified README 644 644, Added build.log - 644 ignored, Renamed data2.bin from data.bin 644 644, Deleted gone 644 -, Added src/new.rs - 644, Added target/out - 644 ignored, Modified tool 755 755"
    );
    assert_eq!(lines[8..12], ["true", "false", "true", "true"]);
    let commit = lines[12].clone();
    assert_eq!(commit.len(), 40, "{lines:?}");
    assert_eq!(lines[13], "Added build.log - 644 ignored, Added target/out - 644 ignored");
    assert_eq!(
        lines[14],
        format!(
            "{commit} Ada L. Ünder <ada@example.com> \"First: größer\\n\\nA body.\\n--- not the end\\nFrom here on\\n\", {pin} A U Thor <author@example.com> \"base\\n\" pinned"
        )
    );
    first.close().await.unwrap();
    drop(first);

    // Another host with an empty cache; the remote is not asked again.
    let asked = world.on.server.seen().len();
    let second = world.host("two");
    let lines = turn(
        &second,
        "status-pin\nwrite\tsrc/lib.rs\tshort\\n\nwrite\tREADME\tanother\\n\nwrite\tdos.txt\tone\\x0d\\nTWO\\x0d\\n\ncommit\tSecond, one path\tsrc\nstatus\ncommit\tThird with carriage returns\tdos.txt\nlink\tREADME\talias\nstatus\ndiff\t0\tREADME",
    )
    .await;
    assert_eq!(
        lines[0],
        "Modified README 644 644, Renamed data2.bin from data.bin 644 644, Deleted gone 644 -, Added src/new.rs - 644, Modified tool 755 755"
    );
    assert_eq!(
        lines[5],
        "Modified README 644 644, Added build.log - 644 ignored, Modified dos.txt 644 644, Added target/out - 644 ignored"
    );
    assert_eq!(lines[8], "Modified README 644 644, Added alias - 777, Added build.log - 644 ignored, Added target/out - 644 ignored");
    assert!(lines[9].contains("@@ -1,2 +1 @@"), "{}", lines[9]);
    assert_eq!(world.on.server.seen().len(), asked);
    let report = second.verify(&second.open(&head()).await.unwrap(), true).await.unwrap();
    assert!(report.is_ok(), "{report:?}");

    // The folder: HEAD at the last commit, exactly the uncommitted edits, sound objects.
    let folder = world.open(&second, "opened").await;
    git(&folder, &["fsck", "--strict"]).unwrap();
    assert_eq!(git(&folder, &["status", "--porcelain", "-uall"]).unwrap(), " M README\n?? alias");
    assert_eq!(git(&folder, &["rev-list", "HEAD"]).unwrap().lines().collect::<Vec<_>>(), [&lines[6], &lines[4], &commit, &pin]);
    assert_eq!(git(&folder, &["symbolic-ref", "HEAD"]).unwrap(), "refs/heads/main");
    assert_eq!(git(&folder, &["rev-parse", "origin/main"]).unwrap(), pin);
    assert_eq!(
        git(&folder, &["show", "--stat", "--format=%an <%ae> %s", "HEAD~2"]).unwrap().lines().next().unwrap(),
        "Ada L. Ünder <ada@example.com> First: größer"
    );
    let names = git(&folder, &["diff", "-M100%", "--name-status", &pin, "HEAD~2"]).unwrap();
    assert_eq!(names, "M\tREADME\nR100\tdata.bin\tdata2.bin\nD\tgone\nA\tsrc/new.rs\nM\ttool");
    assert_eq!(git(&folder, &["ls-files", "-s", "tool"]).unwrap().split(' ').next(), Some("100755"));

    // `git am` on a clone of the pin gives the very tree, also through a mailbox.
    let series = world.patch(&second, &PatchOptions::default()).await;
    assert!(matches!(&series, Patch::Series { uncommitted: 2, .. }), "{series:?}");
    let checkout = world.checkout("am");
    assert_eq!(am(&checkout, &series), 3);
    assert_eq!(git(&checkout, &["rev-parse", "HEAD^{tree}"]).unwrap(), git(&folder, &["rev-parse", "HEAD^{tree}"]).unwrap());
    for format in ["%s", "%an <%ae> %at"] {
        let format = format!("--format={format}");
        assert_eq!(git(&checkout, &["log", &format]).unwrap(), git(&folder, &["log", &format]).unwrap());
    }
    // What isn't committed goes on top.
    let Patch::One(patch) = world.patch(&second, &PatchOptions { uncommitted: true, ..PatchOptions::default() }).await else { panic!() };
    let file = world.on.turns.folder.path().join("rest.patch");
    std::fs::write(&file, &patch).unwrap();
    git(&checkout, &["apply", "--check", file.to_str().unwrap()]).unwrap();
    git(&checkout, &["apply", file.to_str().unwrap()]).unwrap();
    assert_eq!(git(&checkout, &["status", "--porcelain", "-uall"]).unwrap(), " M README\n?? alias");

    // And a push from the folder, over https, to where it came from.
    git(world.on.repository.bare(), &["config", "http.receivepack", "true"]).unwrap();
    let push = git_command(&folder)
        .args(["-c", &format!("http.sslCAInfo={}", world.on.ca.display()), "push", "-q", "origin", "HEAD:refs/heads/from-agent"])
        .output()
        .unwrap();
    assert!(push.status.success(), "{}", String::from_utf8_lossy(&push.stderr));
    assert_eq!(git(world.on.repository.bare(), &["rev-parse", "from-agent"]).unwrap(), lines[6]);
    git(world.on.repository.bare(), &["fsck", "--strict"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_needs_a_message_and_a_difference_and_the_session_stays_usable() {
    let world = World::new().await;
    base(&world.on.repository);
    let host = world.host("one");
    let lines = turn(
        &host,
        "commit\tnothing\ncommit\t \\n\ncommit\tx\t../up\ncommit\tx\t/abs\nwrite\tbuild.log\tignored\\n\ncommit\tonly ignored\nmkdir\tempty/dir\ncommit\tonly folders\nwrite\ta\tb\\n\ncommit\tx\tnothing-here\ndiscard\ndiscard\t\nstatus\nwrite\ta\tb\\n\ncommit\tgood",
    )
    .await;
    for (at, why) in [
        (0, "nothing to commit"),
        (1, "message is empty"),
        (2, "no path"),
        (3, "no path"),
        (5, "nothing to commit"),
        (7, "nothing to commit"),
        (9, "nothing to commit"),
        (10, "no paths to discard"),
    ] {
        assert!(lines[at].starts_with("error: ") && lines[at].contains(why), "{at}: {}", lines[at]);
    }
    assert_eq!((&*lines[11], &*lines[12]), ("1", "Added build.log - 644 ignored"));
    assert_eq!(lines[14].len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commits_of_a_failed_turn_are_gone_with_its_edits_and_a_saved_checkpoint_keeps_its_own() {
    let world = World::new().await;
    let pin = base(&world.on.repository);
    let host = world.host("one");
    let kept = turn(&host, "write\ta\ta\\n\ncommit\tkept").await[1].clone();
    let record = run(&host, "bot", "s", "write\tb\tb\\n\ncommit\tlost\nsave\thalf way\nfail").await.unwrap();
    assert_eq!(record.status, Status::Failed);
    let lines = turn(&host, "log\nstatus").await;
    assert!(lines[0].starts_with(&kept) && lines[0].contains(&pin) && !lines[0].contains("lost"), "{lines:?}");
    assert_eq!(lines[1], "");
    let saved = host.open(&"bot/s@half way".parse().unwrap()).await.unwrap();
    let subjects: Vec<String> = host.commits(&saved, 10).await.unwrap().iter().map(|commit| commit.subject().to_owned()).collect();
    assert_eq!(subjects, ["lost", "kept", "base"]);
    assert!(host.verify(&saved, true).await.unwrap().is_ok());
    // Each run says what it committed.
    let runs = host.runs(&landfall::id::SessionRef { agent: "bot".parse().unwrap(), session: "s".parse().unwrap() }, 10).await.unwrap();
    let mut made = Vec::new();
    for run in &runs {
        made.push(host.commits_of(run).await.unwrap().len());
    }
    assert_eq!(made, [0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_paths_are_as_the_last_commit_has_them() {
    let world = World::new().await;
    base(&world.on.repository);
    let host = world.host("one");
    let lines = turn(
        &host,
        "write\tREADME\tcommitted\\n\ncommit\tone\nwrite\tREADME\tworse\\n\nremove\ttool\nremove\tsrc/deep/er/x\nwrite\tsrc/deep/er\tx\nwrite\tnew/er/file\tx\nwrite\tbuild.log\tkept\\n\ndiscard\tREADME\tnew\nstatus\ncat\tREADME\ndiscard\t\nstatus\ncat\tsrc/deep/er/x",
    )
    .await;
    assert_eq!(lines[5], "io IsADirectory", "the folder is still there");
    assert_eq!(lines[8], "2");
    assert_eq!(lines[9], "Added build.log - 644 ignored, Deleted src/deep/er/x 644 -, Deleted tool 755 -");
    assert_eq!(lines[10], "\"committed\\n\"");
    assert_eq!((&*lines[11], &*lines[12], &*lines[13]), ("2", "Added build.log - 644 ignored", "\"x\\n\""));
    let folder = world.open(&host, "opened").await;
    assert_eq!(git(&folder, &["status", "--porcelain", "-uall"]).unwrap(), "");
    git(&folder, &["fsck", "--strict"]).unwrap();
    // A folder that has become a link leads elsewhere: nothing is written through it.
    let lines = turn(&host, "remove\tsrc/deep/er/x\nrename\tsrc/deep\tsrc/deeper\nlink\t../old\tsrc/deep\ndiscard\tsrc/deep/er/x\nstatus\told\ndiscard\t\nstatus").await;
    assert!(lines[3].contains("has become a file or a link"), "{lines:?}");
    assert_eq!(lines[4], "");
    assert_eq!(lines[6], "Added build.log - 644 ignored");
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_are_applied_backwards_in_commits() {
    let world = World::new().await;
    let repository = &world.on.repository;
    repository.write(".gitattributes", "*.txt text eol=crlf\n*.id ident\n*.u16 working-tree-encoding=UTF-16LE\nraw/* -text\n").unwrap();
    repository.write("a.txt", "one\r\ntwo\r\n").unwrap();
    repository.write("b.id", "$Id$\n").unwrap();
    repository.write("plain", "x\n").unwrap();
    repository.commit("base").unwrap();
    let host = world.host("one");
    // The files are in their checked-out form; what is committed is what `git add` would store.
    turn(
        &host,
        "write\ta.txt\tone\\x0d\\nTWO\\x0d\\n\nwrite\tnew.txt\tn\\x0d\\n\nwrite\tb.id\t$Id: 0123 $\\nmore\\n\nwrite\tc.u16\th\\x00i\\x00\nwrite\traw/x\ta\\x0d\\n\ncommit\tone\nwrite\t.gitattributes\t*.txt -text\\n\nwrite\tlate.txt\tl\\x0d\\n\ncommit\ttwo",
    )
    .await;
    let folder = world.open(&host, "opened").await;
    git(&folder, &["fsck", "--strict"]).unwrap();
    assert_eq!(git(&folder, &["cat-file", "-p", "HEAD~1:a.txt"]).unwrap(), "one\nTWO");
    assert_eq!(git(&folder, &["cat-file", "-p", "HEAD~1:new.txt"]).unwrap(), "n");
    assert_eq!(git(&folder, &["cat-file", "-p", "HEAD~1:b.id"]).unwrap(), "$Id$\nmore");
    assert_eq!(git(&folder, &["cat-file", "-p", "HEAD~1:c.u16"]).unwrap(), "hi");
    assert_eq!(git(&folder, &["cat-file", "-s", "HEAD~1:raw/x"]).unwrap(), "3");
    assert_eq!(git(&folder, &["cat-file", "-s", "HEAD:late.txt"]).unwrap(), "3");
    let checkout = world.checkout("am");
    am(&checkout, &world.patch(&host, &PatchOptions::default()).await);
    assert_eq!(git(&checkout, &["rev-parse", "HEAD^{tree}"]).unwrap(), git(&folder, &["rev-parse", "HEAD^{tree}"]).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_commits_hands_back_one_patch_without_ignored_files() {
    let world = World::new().await;
    base(&world.on.repository);
    let host = world.host("one");
    turn(&host, "write\tREADME\tnew\\n\nwrite\tbuild.log\tnoise\\n\nwrite\tbin\t\\x00\\x01").await;
    let Patch::One(patch) = world.patch(&host, &PatchOptions::default()).await else { panic!("a series without commits") };
    let text = String::from_utf8_lossy(&patch);
    assert!(text.contains("GIT binary patch") && !text.contains("build.log"), "{text}");
    let checkout = world.checkout("apply");
    let file = world.on.turns.folder.path().join("one.patch");
    std::fs::write(&file, &patch).unwrap();
    git(&checkout, &["apply", "--check", file.to_str().unwrap()]).unwrap();
    let Patch::One(all) = world.patch(&host, &PatchOptions { ignored: true, ..PatchOptions::default() }).await else { panic!() };
    assert!(String::from_utf8_lossy(&all).contains("build.log"));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_git_in_any_disguise_get_into_no_commit() {
    let world = World::new().await;
    base(&world.on.repository);
    let host = world.host("one");
    let mut script = String::new();
    let names = [
        ".git/config",
        ".GIT/config",
        ".Git",
        "git~1/x",
        "GIT~1",
        ".git /x",
        ".git.",
        ".git::$INDEX_ALLOCATION",
        "a/b/.gIt/hooks/x",
        ".g\u{200c}it/config",
        ".git\u{feff}",
    ];
    for name in names {
        script.push_str(&format!("write\t{name}\tx\n"));
    }
    script.push_str("link\tx\t.gitmodules\ncommit\ta link that git refuses\nremove\t.gitmodules\nlink\tx\tsub/.gitmodules\nwrite\tsub/x\tx\nlink\tx\tsub/.GitModules\ncommit\tanother\nremove\tsub/.GitModules\nwrite\t.gitmodules\t[submodule \"x\"]\\n\nwrite\tgood\tx\ncommit\tall\nstatus");
    let lines = turn(&host, &script).await;
    for (name, line) in names.iter().zip(&lines) {
        assert!(line.starts_with("io "), "{name}: {line}");
    }
    let after = &lines[names.len()..];
    for at in [1, 6] {
        assert!(after[at].contains("git refuses to check out"), "{after:?}");
    }
    let folder = world.open(&host, "opened").await;
    git(&folder, &["fsck", "--strict"]).unwrap();
    assert_eq!(git(&folder, &["show", "--name-only", "--format="]).unwrap(), ".gitmodules\ngood\nsub/x");
    assert!(!std::fs::read_to_string(folder.join(".git/config")).unwrap().contains('x'), "the host's own config");
}

#[test]
fn the_command_lists_commits_and_hands_them_back() {
    let origin = tempfile::tempdir().unwrap();
    let repository = TestRepository::create(origin.path(), "app.git").unwrap();
    base(&repository);
    let commands = landfall_tests::command::Commands::new(&format!(
        "version = 1\n[agents.bot]\ncomponent = \"{{guests}}/committer.wasm\"\n[agents.bot.repository]\nurl = \"file://{}\"\nauthor = {{ name = \"Bot\", email = \"bot@example.com\" }}\n",
        repository.bare().display()
    ));
    let ran = commands.run(&[
        "run",
        "bot",
        "--session",
        "s",
        "--input",
        "write\ta\ta\\n\ncommit\tFirst of two\nwrite\tb\tb\\n\ncommit\tSecond\nwrite\tc\tc\\n",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let (code, log) = commands.json(&["session", "log", "bot/s"]);
    let made = log["turns"][0]["commits"].as_array().unwrap();
    assert_eq!(
        (code, made.len(), made[1]["message"].as_str(), made[0]["author"]["name"].as_str()),
        (0, 2, Some("First of two\n"), Some("Bot"))
    );
    let shown = commands.run(&["session", "log", "bot/s"]).stdout;
    assert!(shown.contains("First of two") && shown.contains(made[0]["commit"].as_str().unwrap()), "{shown}");
    assert_eq!(commands.json(&["session", "show", "bot/s"]).1["commit"]["commit"], made[0]["commit"]);

    let ran = commands.run(&["session", "patch", "bot/s"]);
    assert!(ran.stderr.contains("1 paths aren't committed"), "{}", ran.stderr);
    let checkout = commands.folder().join("checkout");
    git(commands.folder(), &["clone", "-q", "-b", "main", repository.bare().to_str().unwrap(), "checkout"]).unwrap();
    std::fs::write(commands.folder().join("series.mbox"), &ran.stdout).unwrap();
    git(&checkout, &["am", "-q", "../series.mbox"]).unwrap();
    assert_eq!(git(&checkout, &["log", "--format=%s by %an", "-2"]).unwrap(), "Second by Bot\nFirst of two by Bot");
    let ran = commands.run(&["session", "patch", "bot/s", "--output", "patches"]);
    assert_eq!(ran.stdout, "patches/0001-First-of-two.patch\npatches/0002-Second.patch\n");
    // Never over a file that is there.
    assert_ne!(commands.run(&["session", "patch", "bot/s", "--output", "patches"]).code, 0);
    let rest = commands.run(&["session", "patch", "bot/s", "--uncommitted"]).stdout;
    assert!(rest.contains("+++ b/c") && !rest.contains("+++ b/a"), "{rest}");
}
