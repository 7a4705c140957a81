//! A private repository from the outside, with the command: the token works, and afterwards it is nowhere to be found.

use landfall_tests::command::{Commands, Ran};
use landfall_tests::git_server::{GitServer, TestRepository, run as git};

use super::support::{TOKEN, assert_no_token, token_forms};

struct Private {
    commands: Commands,
    repository: TestRepository,
    server: GitServer,
    _served: tempfile::TempDir,
}

impl Private {
    async fn new() -> Self {
        let served = tempfile::tempdir().unwrap();
        let repository = TestRepository::create(served.path(), "private.git").unwrap();
        repository.write("README", "secret code\n").unwrap();
        repository.commit("one").unwrap();
        let server = GitServer::start(served.path()).await.unwrap();
        server.require(Some(("x-access-token", TOKEN)));
        let agent = |name: &str, repository: &str| {
            format!(
                "[agents.{name}]\ncomponent = \"{{guests}}/committer.wasm\"\ncredentials = [\"APP_TOKEN\"]\nrepository = {{ url = \"https://{}/{repository}\", ca_file = \"ca.pem\" }}\n",
                server.authority()
            )
        };
        let commands = Commands::new(&format!(
            "version = 1\n[credentials.APP_TOKEN]\nsource = {{ env = \"APP_TOKEN\" }}\naudience = [\"https://{}\"]\nfor = [\"repository\"]\n{}{}",
            server.authority(),
            agent("private", "private.git"),
            agent("missing", "missing.git"),
        ));
        std::fs::write(commands.folder().join("ca.pem"), server.ca_pem().unwrap()).unwrap();
        Self { commands, repository, server, _served: served }
    }

    fn run(&self, token: &str, arguments: &[&str]) -> Ran {
        let output = self.commands.command(arguments).env("APP_TOKEN", token).output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn assert_clean(ran: &Ran) {
    for form in token_forms() {
        for said in [&ran.stdout, &ran.stderr] {
            assert!(!said.as_bytes().windows(form.len()).any(|window| window == &form[..]), "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_in_no_file_output_or_log_of_a_private_session() {
    let private = Private::new().await;
    let script = "cat\tREADME\nwrite\tREADME\tedited\\n\ncommit\tedit\nlog\nwrite\tuncommitted\tx\n";
    let ran = private.run(TOKEN, &["run", "private", "--session", "s", "--input", script]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("secret code"), "{}", ran.stdout);
    assert_clean(&ran);
    for arguments in [
        &["run", "private", "--session", "s", "--input", "status\ndiff\t3"][..],
        &["session", "show", "private/s"],
        &["--json", "session", "log", "private/s"],
        &["session", "diff", "private/s"],
        &["session", "patch", "private/s"],
        &["checkpoint", "open", "private/s", "opened"],
    ] {
        let ran = private.run(TOKEN, arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        assert_clean(&ran);
    }
    git(&private.commands.folder().join("opened"), &["fsck", "--strict"]).unwrap();
    // The store, the cache and the opened folder lie here, with the git directory of it.
    assert!(private.commands.store().is_dir());
    assert_no_token(private.commands.folder());
    assert_no_token(&private.commands.folder().join("opened/.git"));
    assert!(private.server.seen().iter().all(|seen| !seen.path.contains(TOKEN)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_token_is_refused_can_t_tell_what_is_there_even_when_it_is_imported() {
    let private = Private::new().await;
    assert_eq!(private.run(TOKEN, &["run", "private", "--session", "first", "--input", ""]).code, 0);
    let commit = private.repository.git(&["rev-parse", "HEAD"]).unwrap();
    // Expired or wrong: by branch, and by the very commit that the store has.
    for (at, arguments) in
        [&["run", "private", "--input", ""][..], &["run", "private", "--input", "", "--commit", &commit]].into_iter().enumerate()
    {
        let session = format!("wrong-{at}");
        let refused = private.run("ghp_ANOTHERanother0123456789", &[arguments, &["--session", &session]].concat());
        let missing = private.run(TOKEN, &["run", "missing", "--session", &session, "--input", ""]);
        assert_eq!((refused.code, refused.stderr.replace("private", "missing")), (missing.code, missing.stderr.clone()));
        assert!(refused.code != 0 && refused.stderr.contains("doesn't exist, or the credential isn't accepted"), "{}", refused.stderr);
        assert!(!private.run(TOKEN, &["session", "list"]).stdout.contains(&session));
        assert_clean(&refused);
    }
    // The pinned session goes on without asking, and so without a token that is still good.
    assert_eq!(private.run("ghp_ANOTHERanother0123456789", &["run", "private", "--session", "first", "--input", ""]).code, 0);
}
