//! Landfall: each operation is a process of its own that connects, does it, and says how long the call itself took.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use landfall::checkpoint::import::{From, ImportOptions};
use landfall::checkpoint::root::{Checkpoint, RootRecord};
use landfall::checkpoint::writer::{PackWriter, WriterOptions};
use landfall::clock::{SharedClock, SystemClock};
use landfall::config::{Agent, Config};
use landfall::host::Host;
use landfall::id::{ReplicaName, RunId, SessionRef};
use landfall::random::SystemRandom;
use landfall::session::replica::Process;
use landfall::session::selector::Selector;
use landfall::session::{Acquired, Origin, Replica, Sessions, Status, Trigger};
use landfall::store::Store;
use landfall::workspace::capture::capture;
use landfall::workspace::page::Home;
use landfall::workspace::source::Source;
use landfall::workspace::{Follow, Limits, OpenHow, Spool, Workspace};
use landfall_tests::seaweed::Seaweed;

use crate::measure::{self, Measured};
use crate::proxy::{self, Counts};
use crate::{Tool, data};

pub(crate) struct Ours {
    variables: Vec<(String, String)>,
    counts: Counts,
    folder: PathBuf,
}

impl Ours {
    pub(crate) fn new(server: &Seaweed, folder: &Path, round: usize) -> Self {
        let (port, counts) = proxy::start(server.port());
        let mut options = server.options();
        options.insert("aws_endpoint".to_owned(), format!("http://127.0.0.1:{port}"));
        let mut variables: Vec<(String, String)> = options.into_iter().map(|(name, value)| (format!("BENCH_{name}"), value)).collect();
        variables.push(("BENCH_URL".to_owned(), format!("{}-landfall-{round}", server.fresh_url())));
        Self { variables, counts, folder: folder.to_path_buf() }
    }
}

impl Tool for Ours {
    fn name(&self) -> &'static str {
        "landfall"
    }

    fn run(&mut self, operation: &str, files: &Path, to: &Path) -> Option<Measured> {
        let program = std::env::current_exe().unwrap().display().to_string();
        let changed = data::changed(files).display().to_string();
        let (files, to) = (files.display().to_string(), to.display().to_string());
        let arguments = ["--child", operation, &files, &to, &changed];
        let (mut measured, said) = measure::run(&program, &arguments, &self.folder, &self.variables, Some(&self.counts));
        measured.call = Some(said.trim().parse().unwrap());
        Some(measured)
    }
}

/// One operation, in a process of its own.
pub(crate) fn child(arguments: &[String]) {
    let [operation, files, to, changed] = arguments else { panic!("{arguments:?}") };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let seconds = runtime.block_on(work(operation, Path::new(files), Path::new(to), changed));
    println!("{seconds}");
}

async fn work(operation: &str, files: &Path, to: &Path, changed: &str) -> f64 {
    let options =
        std::env::vars().filter_map(|(name, value)| Some((name.strip_prefix("BENCH_aws_").map(|name| format!("aws_{name}"))?, value)));
    let url = std::env::var("BENCH_URL").unwrap();
    let clock: SharedClock = Arc::new(SystemClock);
    let store = Store::open(&url, &options.collect(), Arc::clone(&clock), Arc::new(SystemRandom)).await.unwrap();
    let session = SessionRef { agent: "bench".parse().unwrap(), session: "s".parse().unwrap() };
    let mut config = Config::default();
    config.agents.insert(session.agent.clone(), Agent::of_component("none.wasm"));
    let host = Host::builder(store.clone(), config).build().unwrap();
    let head = Selector::Head(session.clone());
    let began = Instant::now();
    match operation {
        "first put" => {
            let options = ImportOptions::default();
            host.import(&session, From::Folder(files.to_path_buf()), &options).await.unwrap();
        }
        "full restore" => {
            host.materialise(&host.open(&head).await.unwrap(), to, &Default::default()).await.unwrap();
        }
        "one file read, fresh" => {
            let changed = changed.replacen(data::RENAMED.0, data::RENAMED.1, 1);
            host.open(&head).await.unwrap().read(&format!("/workspace/{changed}"), 0, u64::MAX).await.unwrap();
        }
        edit => commit(&store, &host, &session, edit, changed, files, &clock).await,
    }
    let seconds = began.elapsed().as_secs_f64();
    host.close().await.unwrap();
    seconds
}

/// What a turn does around its guest: the lease, the edit, capture and upload, the record and the commit.
async fn commit(store: &Store, host: &Host, session: &SessionRef, edit: &str, changed: &str, files: &Path, clock: &SharedClock) {
    let name: ReplicaName = "bench".parse().unwrap();
    let replica = Arc::new(Replica::start(store.clone(), name, None, Process::current()).await.unwrap());
    let sessions = Sessions::new(store.clone(), Arc::clone(&replica));
    let run = RunId::new_v7(u64::try_from(clock.now() / 1_000_000).unwrap(), landfall::random::bytes(&SystemRandom));
    let Acquired::Held(held) = sessions.acquire(session, run, None).await.unwrap() else { panic!("busy") };
    let mut held = *held;
    let base = held.checkpoint().cloned().unwrap();
    let source: Arc<dyn Source> = Arc::clone(host.open_checkpoint(base.clone()).source());
    let spool = Arc::new(Spool::new(files.parent().unwrap().to_path_buf(), 32 << 20, 1 << 30));
    let (workspace, state) = (Some(base.root.workspace.clone()), Some(base.root.state.clone()));
    let workspace = Workspace::open(&source, clock, &spool, Limits::default(), Limits::temporary(), workspace, state);
    match edit {
        "one file changed" => {
            let how = OpenHow { write: true, ..OpenHow::default() };
            let file = workspace.workspace.root().open_at(changed.as_bytes(), Follow::Yes, how).await.unwrap();
            let size = std::fs::metadata(files.join(changed)).unwrap().len() - data::CHANGE.len() as u64;
            file.write_at(size, data::CHANGE.as_bytes()).unwrap();
        }
        "a directory renamed" => {
            let root = workspace.workspace.root();
            root.rename_at(data::RENAMED.0.as_bytes(), &root, data::RENAMED.1.as_bytes()).await.unwrap();
        }
        _ => {}
    }
    let mut writer = PackWriter::new(store.clone(), Arc::new(Home::Session(session.clone())), WriterOptions::default());
    let captured = capture(&workspace.workspace, &mut writer).await.unwrap();
    writer.finish().await.unwrap();
    let root = RootRecord { workspace: writer.resolve_root(&captured.root).unwrap(), ..base.root.clone() };
    let mut record = sessions.new_record(&held, Trigger::Manual, Origin::Command);
    record.status = Status::Completed;
    record.after = Some(Checkpoint::new(root));
    sessions.commit(&mut held, record, &[]).await.unwrap();
    replica.stop().await.unwrap();
}
