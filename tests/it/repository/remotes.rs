//! What a remote is asked, what is said when it refuses, and what it is never told.

use std::sync::Arc;
use std::time::Duration;

use landfall::ErrorKind;
use landfall::clock::SystemClock;
use landfall::repository::branch::BranchName;
use landfall::repository::checkout::TreeLimits;
use landfall::repository::imported::Repositories;
use landfall::repository::remote::{Credential, Git, RemoteOptions, Revision};
use landfall::repository::url::RepositoryUrl;
use landfall_tests::git_server::{Fault, GitServer, SHORT};

use super::support::{TOKEN, World, assert_no_token, memory_store, token, token_forms};

fn branch(name: &str) -> Revision {
    Revision::Branch(BranchName::parse(name).unwrap())
}

fn assert_clean(error: &landfall::Error) {
    let said = format!("{error:?} {error} {} {:?}", error.chain(), error.next_step());
    for form in token_forms() {
        assert!(!said.as_bytes().windows(form.len()).any(|window| window == &form[..]), "{said}");
    }
}

#[tokio::test]
async fn a_revision_is_a_commit() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("a", "1").unwrap();
    let first = repository.commit("one").unwrap();
    repository.git(&["checkout", "-q", "-b", "feature/x"]).unwrap();
    repository.write("a", "2").unwrap();
    let second = repository.commit("two").unwrap();
    let (git, url) = (world.git(), world.url("app.git"));

    let pin = git.resolve(&url, None, &Revision::Default).await.unwrap().pin().clone();
    assert_eq!((pin.commit.to_string(), pin.branch.as_deref()), (first.clone(), Some("main")));
    assert_eq!(pin.url, url.as_str());
    let pin = git.resolve(&url, None, &branch("feature/x")).await.unwrap().pin().clone();
    assert_eq!((pin.commit.to_string(), pin.branch.as_deref()), (second, Some("feature/x")));
    let pin = git.resolve(&url, None, &Revision::Commit(first.parse().unwrap(), None)).await.unwrap().pin().clone();
    assert_eq!((pin.commit.to_string(), pin.branch), (first, None));
}

#[tokio::test]
async fn what_does_not_exist_is_said_by_name() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("a", "1").unwrap();
    let commit = repository.commit("one").unwrap();
    repository.git(&["tag", "v1"]).unwrap();
    repository.git(&["push", "-q", repository.bare().to_str().unwrap(), "v1"]).unwrap();
    repository.git(&["push", "-q", repository.bare().to_str().unwrap(), "HEAD:refs/heads/main-2"]).unwrap();
    world.repository("empty.git");
    let git = world.git();

    // `main-2` begins with the name asked for, as a prefix search would find.
    let error = git.resolve(&world.url("app.git"), None, &branch("mai")).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::NotFound, "branch_not_found"));
    let error = git.resolve(&world.url("app.git"), None, &branch("v1")).await.unwrap_err();
    assert!(error.next_step().unwrap().contains(&commit), "{error:?}");
    let error = git.resolve(&world.url("empty.git"), None, &Revision::Default).await.unwrap_err();
    assert_eq!(error.stable_code(), "branch_not_found");

    let unknown = Revision::Commit("0123456789012345678901234567890123456789".parse().unwrap(), None);
    let access = git.resolve(&world.url("app.git"), None, &unknown).await.unwrap();
    let error = world.repositories().ensure_imported(&access, None).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::NotFound, "commit_not_found"), "{error:?}");
}

#[tokio::test]
async fn a_refused_credential_looks_like_no_repository() {
    let world = World::new().await;
    let repository = world.repository("private.git");
    repository.write("a", "1").unwrap();
    repository.commit("one").unwrap();
    world.server.require(Some(("x-access-token", TOKEN)));
    let git = world.git();

    let right = git.resolve(&world.url("private.git"), Some(&token()), &Revision::Default).await.unwrap();
    assert_eq!(right.pin().branch.as_deref(), Some("main"));
    let wrong = Credential::token("ghp_ANOTHERanother0123456789");
    let refused = git.resolve(&world.url("private.git"), Some(&wrong), &Revision::Default).await.unwrap_err();
    let missing = git.resolve(&world.url("nothing.git"), Some(&token()), &Revision::Default).await.unwrap_err();
    assert_eq!(refused.message().replace("private", "nothing"), missing.message());
    assert_eq!((refused.kind(), refused.stable_code(), refused.next_step()), (missing.kind(), missing.stable_code(), missing.next_step()));
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    for status in [401, 403, 404] {
        world.server.fault(Fault::Status(status));
        let error = git.resolve(&world.url("private.git"), Some(&token()), &Revision::Default).await.unwrap_err();
        assert_eq!(error.message(), refused.message());
        assert_clean(&error);
    }
    world.server.fault(Fault::None);
    let error = git.resolve(&world.url("private.git"), None, &Revision::Default).await.unwrap_err();
    assert_eq!(error.stable_code(), "repository_not_found");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_other_host_hears_nothing() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("a", "1").unwrap();
    repository.commit("one").unwrap();
    let other = GitServer::start_plain(world.server.root()).await.unwrap();
    world.server.fault(Fault::Redirect(other.authority()));
    let error = world.git().resolve(&world.url("app.git"), Some(&token()), &Revision::Default).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Remote, "redirected"));
    assert_clean(&error);
    assert!(other.seen().is_empty());
    // Also to the same host.
    world.server.fault(Fault::Redirect(world.server.authority()));
    let before = world.server.seen().len();
    world.git().resolve(&world.url("app.git"), Some(&token()), &Revision::Default).await.unwrap_err();
    assert_eq!(world.server.seen().len(), before + 1);
}

#[tokio::test]
async fn bad_answers_are_told_apart_and_never_quoted() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("a", vec![b'x'; 100_000]).unwrap();
    repository.write("b", super::support::noise(400_000)).unwrap();
    repository.commit("one").unwrap();
    let url = world.url("app.git");
    for (fault, code) in [(Fault::Status(500), "remote_status"), (Fault::Status(429), "remote_status"), (Fault::Html, "not_git")] {
        world.server.fault(fault.clone());
        let error = world.git().resolve(&url, Some(&token()), &Revision::Default).await.unwrap_err();
        assert_eq!(error.stable_code(), code, "{fault:?}");
        assert_clean(&error);
    }
    world.server.fault(Fault::Stall);
    let git = Git::new(RemoteOptions { gap_timeout: SHORT, ..world.options() }, Arc::new(SystemClock));
    let error = git.resolve(&url, Some(&token()), &Revision::Default).await.unwrap_err();
    assert_eq!(error.stable_code(), "remote_timeout");

    world.server.fault(Fault::None);
    let access = git.resolve(&url, Some(&token()), &Revision::Default).await.unwrap();
    let repositories = Repositories::new(git, world.store.clone(), world.scratch(), TreeLimits::default());
    for (fault, codes) in [
        (Fault::StallAfter(5_000), &["remote_timeout"][..]),
        (Fault::CutAfter(5_000), &["remote_broken"][..]),
        (Fault::Damage(4_000), &["bad_pack", "bad_objects"][..]),
        (Fault::Answer(b"0011ERR go away 123\n0000".to_vec()), &["bad_pack", "remote_broken"][..]),
        (Fault::Answer(vec![b'z'; 5_000]), &["bad_pack", "remote_broken"][..]),
    ] {
        world.server.fault(fault.clone());
        let error = repositories.ensure_imported(&access, None).await.unwrap_err();
        assert!(codes.contains(&error.stable_code()), "{fault:?}: {error:?}");
        assert!(!format!("{error:?} {}", error.chain()).contains("go away"), "{error:?}");
        assert_clean(&error);
    }
    // Nothing half done is left, and the session goes on once the server is well.
    assert_eq!(std::fs::read_dir(world.scratch()).unwrap().count(), 0);
    world.server.fault(Fault::None);
    repositories.ensure_imported(&access, None).await.unwrap();
    assert_eq!(std::fs::read_dir(world.scratch()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_pack_over_the_limits_is_refused() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("noise", super::support::noise(1 << 20)).unwrap();
    // A bomb: few bytes on the wire, many decoded.
    repository.write("bomb", vec![0; 20 << 20]).unwrap();
    repository.commit("one").unwrap();
    let url = world.url("app.git");
    for options in [
        RemoteOptions { max_pack_bytes: 100_000, ..world.options() },
        RemoteOptions { max_object_bytes: 10 << 20, ..world.options() },
        RemoteOptions { max_objects: 3, ..world.options() },
    ] {
        let git = Git::new(options.clone(), Arc::new(SystemClock));
        let access = git.resolve(&url, None, &Revision::Default).await.unwrap();
        let repositories = Repositories::new(git, memory_store(), world.scratch(), TreeLimits::default());
        let error = repositories.ensure_imported(&access, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{options:?}: {error:?}");
    }
    let limits = TreeLimits { bytes: 1 << 20, ..TreeLimits::default() };
    let repositories = Repositories::new(world.git(), memory_store(), world.scratch(), limits);
    let access = repositories.git().resolve(&url, None, &Revision::Default).await.unwrap();
    let error = repositories.ensure_imported(&access, None).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Limit, "tree_too_large"));
}

#[tokio::test]
async fn clear_text_and_paths_need_a_setting() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("a", "1").unwrap();
    let commit = repository.commit("one").unwrap();
    let plain = GitServer::start_plain(world.server.root()).await.unwrap();
    plain.require(Some(("x-access-token", TOKEN)));
    let (http, file) = (RepositoryUrl::parse(&plain.url("app.git")).unwrap(), RepositoryUrl::from_path(repository.bare()).unwrap());
    for url in [&http, &file] {
        let error = world.git().resolve(url, Some(&token()), &Revision::Default).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
    assert!(plain.seen().is_empty());
    let options = RemoteOptions { allow_file: true, allow_http_loopback: true, ..world.options() };
    let git = Git::new(options, Arc::new(SystemClock));
    for url in [&http, &file] {
        let access = git.resolve(url, Some(&token()), &Revision::Default).await.unwrap();
        assert_eq!(access.pin().commit.to_string(), commit);
    }
    let error = git.resolve(&RepositoryUrl::parse("http://example.com/a").unwrap(), None, &Revision::Default).await.unwrap_err();
    assert_eq!(error.stable_code(), "http_not_allowed");
    let error = git.resolve(&RepositoryUrl::parse("https://169.254.169.254/a").unwrap(), None, &Revision::Default).await.unwrap_err();
    assert_eq!(error.stable_code(), "address_refused");
}

#[tokio::test]
async fn an_unknown_authority_is_not_trusted() {
    let world = World::new().await;
    world.repository("app.git");
    let git = Git::new(RemoteOptions::default(), Arc::new(SystemClock));
    let error = git.resolve(&world.url("app.git"), Some(&token()), &Revision::Default).await.unwrap_err();
    assert_eq!(error.stable_code(), "remote_unreachable");
    assert!(world.server.seen().is_empty());
    let git = Git::new(RemoteOptions { ca_pem: Some(b"nonsense".to_vec()), ..RemoteOptions::default() }, Arc::new(SystemClock));
    let error = git.resolve(&world.url("app.git"), None, &Revision::Default).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn old_servers_are_asked_for_the_branch() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("a", "1").unwrap();
    let first = repository.commit("one").unwrap();
    repository.write("a", "2").unwrap();
    let second = repository.commit("two").unwrap();
    world.server.fault(Fault::NoFetchByCommit);
    let repositories = world.repositories();
    let main = BranchName::parse("main").unwrap();
    for commit in [&second, &first] {
        let revision = Revision::Commit(commit.parse().unwrap(), Some(main.clone()));
        let access = repositories.git().resolve(&world.url("app.git"), None, &revision).await.unwrap();
        let imported = repositories.ensure_imported(&access, None).await.unwrap();
        assert_eq!(&imported.commit.to_string(), commit);
    }
    // One that no ref reaches isn't given out, and isn't found in the branch either.
    repository.git(&["checkout", "-q", "--orphan", "lost"]).unwrap();
    let lost = repository.commit("lost").unwrap();
    std::process::Command::new("git").args(["update-ref", "-d", "refs/heads/lost"]).current_dir(repository.bare()).status().unwrap();
    let revision = Revision::Commit(lost.parse().unwrap(), Some(main));
    let access = repositories.git().resolve(&world.url("app.git"), None, &revision).await.unwrap();
    let error = repositories.ensure_imported(&access, None).await.unwrap_err();
    assert_eq!(error.stable_code(), "commit_not_found", "{error:?}");
}

#[tokio::test]
async fn a_second_session_costs_one_check_and_needs_its_own_credential() {
    let world = World::new().await;
    let repository = world.repository("private.git");
    repository.write("a", "1").unwrap();
    let commit = repository.commit("one").unwrap();
    world.server.require(Some(("x-access-token", TOKEN)));
    let repositories = world.repositories();
    let url = world.url("private.git");
    let access = repositories.git().resolve(&url, Some(&token()), &Revision::Default).await.unwrap();
    let imported = repositories.ensure_imported(&access, None).await.unwrap();

    let revision = Revision::Commit(commit.parse().unwrap(), None);
    let before = world.server.seen().len();
    let access = repositories.git().resolve(&url, Some(&token()), &revision).await.unwrap();
    let again = repositories.ensure_imported(&access, None).await.unwrap();
    assert_eq!(imported, again);
    let asked = world.server.seen().split_off(before);
    assert_eq!(asked.len(), 1, "{asked:?}");
    // Another session with a credential that the remote refuses gets nothing, although the import is there.
    let error = repositories.git().resolve(&url, Some(&Credential::token("ghp_ANOTHERanother0123456789")), &revision).await.unwrap_err();
    assert_eq!(error.stable_code(), "repository_not_found");
    let error = repositories.git().resolve(&url, None, &revision).await.unwrap_err();
    assert_eq!(error.stable_code(), "repository_not_found");
    // Later turns ask nobody.
    let before = world.server.seen().len();
    assert_eq!(repositories.open(access.pin()).await.unwrap(), imported);
    assert_eq!(world.server.seen().len(), before);
}

#[tokio::test]
async fn the_token_is_sent_to_the_remote_and_is_nowhere_else() {
    let world = World::new().await;
    let repository = world.repository("private.git");
    for number in 0..200 {
        repository.write(format!("d{}/f{number}", number % 7), format!("file {number}\n").repeat(50)).unwrap();
    }
    repository.commit("one").unwrap();
    world.server.require(Some(("x-access-token", TOKEN)));
    // A store on the disk, so that all of it can be searched.
    let folder = world.folder.path().join("store");
    let store = landfall::store::Store::open(
        &format!("file://{}", folder.display()),
        &landfall::store::Options::default(),
        Arc::new(SystemClock),
        Arc::new(landfall::random::SystemRandom),
    )
    .await
    .unwrap();
    let repositories = Repositories::new(world.git(), store, world.scratch(), TreeLimits::default());
    let access = repositories.git().resolve(&world.url("private.git"), Some(&token()), &Revision::Default).await.unwrap();
    assert!(!format!("{access:?} {:?}", token()).contains(TOKEN));
    // The temporary git directory is looked at while it is there: its last progress comes before it goes.
    let looked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (scratch, count) = (world.scratch(), Arc::clone(&looked));
    let sink: landfall::repository::remote::ProgressSink = Arc::new(move |_| {
        assert!(std::fs::read_dir(&scratch).unwrap().count() > 0);
        assert_no_token(&scratch);
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    repositories.ensure_imported(&access, Some(&sink)).await.unwrap();
    assert!(looked.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert!(folder.join("repos").is_dir());
    assert_no_token(&folder);
    assert!(world.server.seen().iter().all(|seen| seen.authorization.is_some() && !seen.path.contains(TOKEN)));
}

#[tokio::test]
async fn giving_up_stops_the_fetch() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("a", super::support::noise(400_000)).unwrap();
    repository.commit("one").unwrap();
    let git = Git::new(RemoteOptions { gap_timeout: SHORT, ..world.options() }, Arc::new(SystemClock));
    let access = git.resolve(&world.url("app.git"), None, &Revision::Default).await.unwrap();
    world.server.fault(Fault::StallAfter(1_000));
    let repositories = Repositories::new(git, world.store.clone(), world.scratch(), TreeLimits::default());
    let given_up = tokio::time::timeout(Duration::from_millis(500), repositories.ensure_imported(&access, None)).await;
    assert!(given_up.is_err());
    // The thread ends with the gap's limit and takes its folder with it.
    let mut waited = 0;
    while std::fs::read_dir(world.scratch()).unwrap().count() > 0 {
        tokio::time::timeout(Duration::from_millis(100), std::future::pending::<()>()).await.unwrap_err();
        waited += 1;
        assert!(waited < 600, "the temporary folder stays");
    }
}

/// Frames a pack as the answer to a fetch of protocol version 2 (gitprotocol-v2(5), gitprotocol-pack(5)).
fn answer_with(pack: &[u8]) -> Vec<u8> {
    let mut answer = b"000dpackfile\n".to_vec();
    for piece in pack.chunks(60_000) {
        answer.extend_from_slice(format!("{:04x}\x01", piece.len() + 5).as_bytes());
        answer.extend_from_slice(piece);
    }
    answer.extend_from_slice(b"0000");
    answer
}

fn pack_of(repository: &landfall_tests::git_server::TestRepository, objects: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut child = landfall_tests::git_server::git_command(repository.bare())
        .args(["pack-objects", "-q", "--stdout"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(objects.as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[tokio::test]
async fn a_server_that_lies_about_objects_is_found_out() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    repository.write("dir/a", "1\n").unwrap();
    let wanted = repository.commit("wanted").unwrap();
    repository.write("dir/a", "2\n").unwrap();
    let other = repository.commit("other").unwrap();
    let id = |name: &str| landfall_tests::git_server::run(repository.bare(), &["rev-parse", name]).unwrap();
    let all = |commit: &str| {
        format!("{commit}\n{}\n{}\n{}\n", id(&format!("{commit}^{{tree}}")), id(&format!("{commit}:dir")), id(&format!("{commit}:dir/a")))
    };
    let repositories = world.repositories();
    let revision = Revision::Commit(wanted.parse().unwrap(), None);
    let access = repositories.git().resolve(&world.url("app.git"), None, &revision).await.unwrap();
    let mut short = pack_of(&repository, &all(&wanted));
    short.truncate(short.len() - 25);
    let mut counts_more = pack_of(&repository, &all(&wanted));
    counts_more[11] = 200;
    for (what, pack) in [
        ("another commit", pack_of(&repository, &all(&other))),
        ("the commit alone", pack_of(&repository, &format!("{wanted}\n"))),
        ("no file", pack_of(&repository, &format!("{wanted}\n{}\n{}\n", id(&format!("{wanted}^{{tree}}")), id(&format!("{wanted}:dir"))))),
        ("no pack", Vec::new()),
        ("an empty pack", pack_of(&repository, "")),
        ("a cut pack", short),
        ("more objects than there are", counts_more),
    ] {
        world.server.fault(Fault::Answer(answer_with(&pack)));
        let error = repositories.ensure_imported(&access, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Remote, "{what}: {error:?}");
        assert!(["bad_pack", "bad_objects", "remote_broken"].contains(&error.stable_code()), "{what}: {error:?}");
    }
    assert_eq!(std::fs::read_dir(world.scratch()).unwrap().count(), 0);
    // Beside these the honest pack in the same frame is taken: it is the content that was refused.
    world.server.fault(Fault::Answer(answer_with(&pack_of(&repository, &all(&wanted)))));
    assert_eq!(repositories.ensure_imported(&access, None).await.unwrap().commit.to_string(), wanted);
}
