//! The pin's rules: chosen once, never moved, never half made, and only where the operator wants it to be.

use std::sync::Arc;

use landfall::ErrorKind;
use landfall::cancel::Cancel;
use landfall::config::Agent;
use landfall::host::Host;
use landfall::pin::OnBranch;
use landfall::session::record::{RunRecord, Status};
use landfall::trigger::{PinChoice, RunEvent, TurnRequest};
use landfall_tests::git_server::{Fault, TestRepository};
use landfall_tests::turns::{OnRepository, Seen, Turns, run};

struct World {
    on: OnRepository,
}

impl World {
    async fn new() -> Self {
        Self { on: OnRepository::new(Turns::new().unwrap()).await.unwrap() }
    }

    fn agent(&self) -> Agent {
        self.on.agent("committer")
    }

    fn host(&self, agent: Agent) -> Host {
        self.on.turns.host("one", &[("bot", agent)]).unwrap()
    }

    fn strict(&self, branch: Option<&str>) -> Host {
        let mut agent = self.agent();
        let repository = agent.repository.as_mut().unwrap();
        repository.require_commit_on_branch = true;
        repository.branch = branch.map(str::to_owned);
        self.host(agent)
    }
}

async fn choose(host: &Host, session: &str, choice: PinChoice) -> landfall::Result<(RunRecord, Arc<Seen>)> {
    let mut request = TurnRequest::new("bot".parse().unwrap(), session.parse().unwrap(), "");
    request.choice = Some(choice);
    let seen = Arc::new(Seen::default());
    Ok((host.run(request, Arc::<Seen>::clone(&seen), Cancel::never()).await?, seen))
}

fn commit(id: &str) -> PinChoice {
    PinChoice::Commit(id.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_turn_may_choose_once_and_later_ones_are_told_that_it_was_ignored() {
    let world = World::new().await;
    world.on.repository.write("a", "1\n").unwrap();
    let first = world.on.repository.commit("one").unwrap();
    world.on.repository.write("a", "2\n").unwrap();
    let second = world.on.repository.commit("two").unwrap();
    let host = world.host(world.agent());
    let (record, _) = choose(&host, "s", commit(&first)).await.unwrap();
    let pin = record.pin.clone().unwrap();
    assert_eq!((pin.commit.to_string(), pin.on_branch), (first.clone(), OnBranch::Unchecked));
    let asked = world.on.server.seen().len();
    for choice in [commit(&second), PinChoice::Branch("no-such".to_owned())] {
        let (record, seen) = choose(&host, "s", choice).await.unwrap();
        assert_eq!((record.status, record.pin.as_ref()), (Status::Completed, Some(&pin)));
        assert!(record.warnings.iter().any(|warning| warning.contains("ignored")), "{record:?}");
        assert!(seen.0.lock().unwrap().iter().any(|event| matches!(event, RunEvent::Warning(text) if text.contains("ignored"))));
    }
    assert_eq!(world.on.server.seen().len(), asked);
    // Another session stands where the branch is.
    let record = run(&host, "bot", "t", "").await.unwrap();
    assert_eq!(record.pin.unwrap().commit.to_string(), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_with_another_url_is_refused_and_the_old_one_goes_on() {
    let world = World::new().await;
    world.on.repository.write("a", "1\n").unwrap();
    world.on.repository.commit("one").unwrap();
    let other = TestRepository::create(world.on.server.root(), "other.git").unwrap();
    other.write("a", "1\n").unwrap();
    other.commit("one").unwrap();
    run(&world.host(world.agent()), "bot", "s", "").await.unwrap();
    for url in [Some(world.on.server.url("other.git")), None] {
        let mut agent = world.agent();
        match url {
            Some(url) => agent.repository.as_mut().unwrap().url = url,
            None => agent.repository = None,
        }
        let error = run(&world.host(agent), "bot", "s", "").await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Conflict, "pin_mismatch"), "{error:?}");
    }
    // The same repository in another spelling is the same.
    let mut agent = world.agent();
    agent.repository.as_mut().unwrap().url.push('/');
    assert_eq!(run(&world.host(agent), "bot", "s", "").await.unwrap().status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_turn_whose_fetch_fails_pins_nothing() {
    let world = World::new().await;
    world.on.repository.write("a", super::support::noise(50_000)).unwrap();
    let first = world.on.repository.commit("one").unwrap();
    let host = world.host(world.agent());
    for fault in [Fault::CutAfter(5_000), Fault::Damage(6_000), Fault::Answer(vec![b'z'; 5_000]), Fault::Status(503), Fault::Html] {
        world.on.server.fault(fault.clone());
        choose(&host, "s", commit(&first)).await.unwrap_err();
        assert!(host.sessions(None).await.unwrap().is_empty(), "{fault:?}");
    }
    world.on.server.fault(Fault::None);
    world.on.repository.write("a", "2\n").unwrap();
    let second = world.on.repository.commit("two").unwrap();
    // Nothing of the failed choice is left: this one stands on the branch.
    let record = run(&host, "bot", "s", "").await.unwrap();
    assert_eq!((record.seq, record.pin.unwrap().commit.to_string()), (1, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_operator_wants_it_a_commit_has_to_lie_on_the_branch() {
    let world = World::new().await;
    let mut commits = Vec::new();
    for n in 0..5 {
        world.on.repository.write("a", format!("{n}\n")).unwrap();
        commits.push(world.on.repository.commit("on main").unwrap());
    }
    world.on.repository.git(&["checkout", "-q", "-b", "side", &commits[1]]).unwrap();
    world.on.repository.write("b", "side\n").unwrap();
    let side = world.on.repository.commit("on the side").unwrap();
    for (at, branch) in [Some("main"), None].into_iter().enumerate() {
        let host = world.strict(branch);
        let (record, _) = choose(&host, &format!("old-{at}"), commit(&commits[0])).await.unwrap();
        let pin = record.pin.unwrap();
        assert_eq!((pin.commit.to_string(), pin.branch.as_deref(), pin.on_branch), (commits[0].clone(), Some("main"), OnBranch::Yes));
        let (record, _) = choose(&host, &format!("tip-{at}"), commit(&commits[4])).await.unwrap();
        assert_eq!(record.pin.unwrap().on_branch, OnBranch::Yes);
        let error = choose(&host, "aside", commit(&side)).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Denied, "commit_not_on_branch"), "{error:?}");
        assert!(error.chain().contains("main"), "{error:?}");
        assert!(host.sessions(None).await.unwrap().iter().all(|head| head.session.session.as_str() != "aside"));
    }
    // A server that can't leave files out is asked for all of them.
    world.on.server.fault(Fault::NoFetchByCommit);
    let (record, _) = choose(&world.strict(Some("main")), "old-server", commit(&commits[2])).await.unwrap();
    assert_eq!(record.pin.unwrap().on_branch, OnBranch::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_token_beside_a_broad_one_is_refused_before_anything_is_asked() {
    let world = World::new().await;
    world.on.repository.write("a", "1\n").unwrap();
    world.on.repository.commit("one").unwrap();
    let mut config = landfall::config::Config::default();
    let agent = Agent { credentials: vec!["GITHUB_READ_TOKEN".to_owned()], ..world.agent() };
    config.agents.insert("bot".parse().unwrap(), agent);
    let host = Host::builder(world.on.turns.store.clone(), config)
        .cache_dir(world.on.turns.folder.path().join("broad"))
        .secret("GITHUB_READ_TOKEN", landfall::secret::Secret::new("GITHUB_READ_TOKEN", "ghp_0123456789abcdefTESTTOKEN").unwrap())
        .broad_token(true)
        .build()
        .unwrap();
    let error = run(&host, "bot", "s", "").await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Denied, "token_too_broad"));
    assert!(error.next_step().unwrap().contains("unset"), "{error:?}");
    assert!(world.on.server.seen().is_empty());
}
