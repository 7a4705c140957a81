//! Golden files: one stored object of each kind, written once by this code and from then on only read.
//!
//! A format that changed by accident shows here: the bytes in `tests/golden/` have to decode to the values below, and the values have to encode to
//! the bytes. A format that changes on purpose gets a new version and new files beside the old ones, which have to be read for ever.
//! [`write_what_is_missing`] writes a file that isn't there, and never one that is.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::checkpoint::pack::{self, FrameEntry, FrameKind, PackBuilder};
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::{frame, root_codec};
use crate::error::ErrorKind;
use crate::id::{ChunkId, CommitId, Digest, PackId, PageId, RunId, SessionRef, sha256};
use crate::outbound::EgressUsage;
use crate::pin::{OnBranch, Pin};
use crate::repository::import::{Warning, WarningKind, Warnings};
use crate::repository::imported::Imported;
use crate::schedule::claim::Claim;
use crate::schedule::history::{Entry, Outcome};
use crate::schedule::plan::{CatchUp, Overlap, Plan, SessionPolicy, Source, Spec};
use crate::schedule::state::{Open, Phase, Problem, State as ScheduleState, Totals};
use crate::session::head::{ForkPin, ForkedFrom, Head, Lease, Owner, Pending, Recent, Save, State, Trashed};
use crate::session::queue::{AttachmentRef, Choice, OnCrash, QueueEntry};
use crate::session::record::{Failure, Input, Origin, Previous, RunRecord, Status, StoredText, Text, Trigger, Usage};
use crate::session::replica::{Process, ReplicaRecord};
use crate::store::document::{self, Document};
use crate::store::marker::Marker;
use crate::store::probe::{Remembered, Scratch};
use crate::store::{Abilities, Counts, Key, Nonce, SessionHash};
use crate::workspace::page::{Home, Location, PageLink, Place, Root};

/// 2026-03-08T07:00:00Z, nanoseconds since 1970.
const AT: i64 = 1_772_953_200_000_000_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden")
}

type Check = Box<dyn Fn(&[u8])>;

/// A golden document: where its bytes are, what they have to be, and how the stored ones are checked.
struct Golden {
    file: String,
    kind: &'static str,
    bytes: Bytes,
    check: Check,
}

fn nonces() -> Vec<Nonce> {
    (1..=3).map(|n| Nonce::from_bytes([n; 16])).collect()
}

/// Takes a document apart behind its digest and puts it together with another version and other bytes there; its digest is right.
fn relabelled(bytes: &[u8], kind: &str, version: u32, change: impl Fn(String) -> String) -> Vec<u8> {
    let text = std::str::from_utf8(bytes).unwrap();
    let (_, rest) = text.split_once("\"nonce\":").unwrap();
    let rest = change(format!("\"nonce\":{rest}"));
    let sum = sha256(format!("landfall:document:{kind}:{version}\n{rest}").as_bytes());
    format!("{{\"landfall\":\"{kind}\",\"version\":{version},\"sha256\":\"{sum}\",{rest}").into_bytes()
}

/// `name` tells several documents of one kind apart; empty for the first.
fn golden<T: Document + PartialEq + Debug + 'static>(name: &str, value: T) -> Golden {
    let kind = T::KIND;
    let file = if name.is_empty() { format!("{kind}.json") } else { format!("{kind}-{name}.json") };
    let bytes = document::encode(&value, &nonces()).unwrap().bytes;
    let what = file.clone();
    let check = move |stored: &[u8]| {
        let read = document::decode::<T>(&what, stored).unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
        assert_eq!((&read.value, read.nonces), (&value, nonces()), "{what} says something else now");
        let again = document::encode(&value, &nonces()).unwrap().bytes;
        assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(stored), "{what} is written in another form now");
        // The same document of a newer version: it isn't damage, and the reader is told what to do.
        let newer = document::decode::<T>(&what, &relabelled(stored, kind, T::VERSION + 1, |rest| rest)).unwrap_err();
        assert_eq!((newer.kind(), newer.stable_code()), (ErrorKind::TooNew, "too_new"), "{what}");
        assert!(newer.message().contains(&(T::VERSION + 1).to_string()) && newer.next_step().is_some(), "{newer:?}");
        // A field that this version doesn't have, under a right digest, and the name of another kind.
        let more = relabelled(stored, kind, T::VERSION, |rest| rest.replacen("\"body\":{", "\"body\":{\"more\":1,", 1));
        assert_eq!(document::decode::<T>(&what, &more).unwrap_err().stable_code(), T::DAMAGED, "{what}");
        let other = relabelled(stored, "other", T::VERSION, |rest| rest);
        assert_eq!(document::decode::<T>(&what, &other).unwrap_err().stable_code(), T::DAMAGED, "{what}");
    };
    Golden { file, kind, bytes, check: Box::new(check) }
}

fn session() -> SessionRef {
    SessionRef { agent: "reviewer".parse().unwrap(), session: "fix 42 / größer".parse().unwrap() }
}

fn run(n: u8) -> RunId {
    RunId::new_v7(1_772_953_200_000 + u64::from(n), [n; 10])
}

fn owner() -> Owner {
    Owner { replica: "host-1".parse().unwrap(), boot: Nonce::from_bytes([0xb0; 16]) }
}

fn location(home: Home, n: u8) -> Location {
    Location { home: Arc::new(home), pack: PackId::from_bytes([n; 32]), frame: 70_000, stored: 400, start: 16, len: 350 }
}

fn page(home: Home, n: u8) -> PageLink {
    PageLink { id: PageId::from_bytes([n; 32]), place: Place::At(location(home, n)) }
}

fn root(n: u8, links: bool) -> Root {
    let home = || Home::Session(session());
    Root { page: page(home(), n), links: links.then(|| page(home(), n + 1)), entries: 20_000 + u64::from(n), bytes: 82_000_000 }
}

fn pin() -> Pin {
    let url = "https://example.org/acme/app".to_owned();
    Pin { url, branch: Some("main".to_owned()), commit: CommitId::from_bytes([0xc0; 20]), on_branch: OnBranch::Yes }
}

/// A checkpoint with everything that one can have.
fn checkpoint(n: u8) -> Checkpoint {
    let repository = Home::Repository(Digest::from_bytes([0xaa; 32]));
    let git = Root { page: page(repository, n + 4), links: None, entries: 3, bytes: 900 };
    Checkpoint::new(RootRecord { workspace: root(n, true), state: root(n + 2, false), git: Some(git), pin: Some(pin()) })
}

/// A checkpoint with nothing that one can do without.
fn plain_checkpoint() -> Checkpoint {
    Checkpoint::new(RootRecord { workspace: root(7, false), state: root(8, false), git: None, pin: None })
}

fn heads() -> Vec<Golden> {
    let full = Head {
        min_reader: 1,
        session: session(),
        incarnation: Nonce::from_bytes([1; 16]),
        created: AT,
        state: State::Open,
        epoch: 9,
        seq: 5,
        turn: 4,
        checkpoint: Some(checkpoint(0x10)),
        lease: Some(Lease { owner: owner(), epoch: 9, run: run(6), attempt: 2 }),
        pending: Some(Pending { run: run(7), attempts: 1 }),
        cancels: vec![run(6), run(8)],
        recent: vec![
            Recent { run: run(5), seq: 5, epoch: 8, status: Status::TimedOut, record: sha256(b"5"), settled: false },
            Recent { run: run(4), seq: 4, epoch: 7, status: Status::Completed, record: sha256(b"4"), settled: true },
        ],
        saves: vec![Save { name: "before the \"rewrite\"".to_owned(), checkpoint: plain_checkpoint(), run: run(4), epoch: 7, at: AT + 1 }],
        pins: vec![ForkPin {
            child: SessionRef { agent: "reviewer".parse().unwrap(), session: "fork".parse().unwrap() },
            incarnation: Nonce::from_bytes([2; 16]),
            checkpoint: plain_checkpoint(),
            at: AT + 2,
            settled: true,
        }],
        trash: vec![Trashed { pack: PackId::from_bytes([0x77; 32]), since: AT + 3 }],
        kept_from: 2,
        forked_from: Some(ForkedFrom { session: session(), incarnation: Nonce::from_bytes([3; 16]), checkpoint: plain_checkpoint().id }),
    };
    let new = Head::new(session(), Nonce::from_bytes([4; 16]), AT);
    let deleted = Head { state: State::Deleted(AT + 4), epoch: 3, ..new.clone() };
    vec![golden("", full), golden("new", new), golden("deleted", deleted)]
}

fn runs() -> Vec<Golden> {
    let stored = StoredText { id: ChunkId::from_bytes([0x33; 32]), at: location(Home::Session(session()), 0x34) };
    let completed = RunRecord {
        run: run(5),
        session: session(),
        incarnation: Nonce::from_bytes([1; 16]),
        seq: 5,
        epoch: 8,
        turn: 4,
        attempt: 1,
        status: Status::Completed,
        trigger: Trigger::Schedule { schedule: "reviewer/nightly".to_owned(), tick: Some(AT) },
        origin: Origin::Server,
        input: Some(Input::of("look at \u{1f600}\n")),
        request: Some(sha256(b"request")),
        output: Some(Text::Inline("done\n".to_owned())),
        before: Some(plain_checkpoint()),
        after: Some(checkpoint(0x10)),
        pin: Some(pin()),
        component: Some(sha256(b"component")),
        usage: Usage {
            wall_ms: 1234,
            cpu_ms: 567,
            memory_peak: 8 << 20,
            store: Counts { puts: 3, gets: 2, heads: 1, lists: 1, deletes: 1, put_bytes: 32_000, get_bytes: 4_000 },
            egress: EgressUsage { requests: 2, denied: 1, sent: 10, received: 2_000 },
        },
        failure: None,
        workspace_rolled_back: false,
        started: AT,
        ended: Some(AT + 1_234_000_000),
        owner: owner(),
        log: Some(Text::Stored(stored)),
        events: Some(Text::Inline("{\"kind\":\"progress\"}\n".to_owned())),
        warnings: vec!["something to know".to_owned()],
        previous: Some(Previous { run: run(4), seq: 4, record: sha256(b"4") }),
    };
    let failed = RunRecord {
        status: Status::Failed,
        trigger: Trigger::Manual,
        origin: Origin::Command,
        request: None,
        output: None,
        before: None,
        after: None,
        pin: None,
        component: None,
        failure: Some(Failure::new("trap", "the guest trapped: unreachable").hint(Some("look at the log"))),
        workspace_rolled_back: true,
        log: None,
        events: None,
        warnings: Vec::new(),
        previous: None,
        ..completed.clone()
    };
    let running = RunRecord { status: Status::Running, ended: None, failure: None, workspace_rolled_back: false, ..failed.clone() };
    vec![golden("", completed), golden("failed", failed), golden("running", running)]
}

fn queued() -> Vec<Golden> {
    let full = QueueEntry {
        run: run(6),
        session: session(),
        incarnation: Some(Nonce::from_bytes([1; 16])),
        input: Input { digest: sha256(b"a long input"), size: 12_345, inline: None },
        attachments: vec![AttachmentRef {
            name: "plan.pdf".to_owned(),
            media_type: "application/pdf".to_owned(),
            digest: sha256(b"pdf"),
            size: 3,
        }],
        trigger: Trigger::Manual,
        choice: Some(Choice::Commit(CommitId::from_bytes([0xc1; 20]))),
        args: Some(vec!["--fast".to_owned(), String::new()]),
        params: vec![("model".to_owned(), "small".to_owned())],
        on_crash: OnCrash::Retry(3),
        attempts: 1,
        origin: Origin::Server,
        owner: owner(),
        created: AT,
    };
    let plain = QueueEntry {
        incarnation: None,
        input: Input::of(""),
        attachments: Vec::new(),
        choice: Some(Choice::Branch("main".to_owned())),
        args: None,
        params: Vec::new(),
        on_crash: OnCrash::Fail,
        attempts: 0,
        origin: Origin::Command,
        ..full.clone()
    };
    vec![golden("", full), golden("plain", plain)]
}

fn schedules() -> Vec<Golden> {
    let id: crate::id::ScheduleId = "reviewer/nightly".parse().unwrap();
    let tick: crate::tick::Tick = "2026-03-08T07:00:00Z".parse().unwrap();
    let spec = Spec {
        agent: "reviewer".parse().unwrap(),
        cron: Some("0 3 * * mon-fri".to_owned()),
        timezone: "Europe/London".to_owned(),
        input: "look".to_owned(),
        session: SessionPolicy::Named("nightly work".parse().unwrap()),
        overlap: Overlap::Queue,
        catch_up: CatchUp::All,
        catch_up_window: 3600,
        jitter: 60,
        retries: 2,
        retry_pause: 30,
        paused: true,
    };
    let plan = Plan {
        id: id.clone(),
        generation: 7,
        spec,
        source: Source::Config,
        armed_from: tick,
        undeclared: Some(AT + 1),
        removed: Some(AT + 2),
        created: AT,
        changed: AT + 3,
    };
    let on_demand = Plan {
        id: "weekly".parse().unwrap(),
        spec: Spec::on_demand("reviewer".parse().unwrap()),
        source: Source::Operator,
        undeclared: None,
        removed: None,
        ..plan.clone()
    };
    let open = |n: u8, phase| Open {
        tick: if n == 1 { crate::tick::TickName::Triggered(run(n)) } else { crate::tick::TickName::Due(tick) },
        first: run(n),
        run: run(n + 1),
        session: session(),
        attempt: 2,
        generation: 7,
        phase,
        owner: owner(),
        at: AT,
    };
    let entry = Entry {
        tick: crate::tick::TickName::Due(tick),
        count: 1,
        outcome: Outcome::TimedOut,
        reason: "it ran out of time".to_owned(),
        run: Some(run(3)),
        session: Some("nightly work".parse().unwrap()),
        attempts: 2,
        late_ms: Some(1_500),
        at: AT + 4,
    };
    let missed = Entry {
        count: 12,
        outcome: Outcome::Missed,
        reason: String::new(),
        run: None,
        session: None,
        attempts: 1,
        late_ms: None,
        ..entry.clone()
    };
    let state = ScheduleState {
        id: id.clone(),
        generation: 7,
        zones: "2026a".to_owned(),
        cursor: tick,
        next: Some(tick.plus(86_400)),
        floor: tick.plus(-86_400),
        backlog: Some(tick.plus(3_600)),
        open: vec![open(1, Phase::Queued), open(2, Phase::Taken), open(3, Phase::Waiting), open(4, Phase::Pausing(AT + 5))],
        starts: vec![AT, AT + 1],
        problem: Some(Problem { code: "unknown_agent".to_owned(), message: "no such agent".to_owned(), at: AT }),
        totals: Totals { ran: 5, failed: 4, skipped: 3, missed: 2, refused: 1 },
        history: vec![entry, missed],
    };
    let new = ScheduleState::new(&on_demand);
    let claim = Claim {
        id,
        tick: crate::tick::TickName::Due(tick),
        run: run(3),
        session: session(),
        input: Input::of("look"),
        generation: 7,
        owner: owner(),
        created: AT,
    };
    let triggered = Claim { id: "weekly".parse().unwrap(), tick: crate::tick::TickName::Triggered(run(4)), ..claim.clone() };
    vec![
        golden("", plan),
        golden("on-demand", on_demand),
        golden("", state),
        golden("new", new),
        golden("", claim),
        golden("triggered", triggered),
    ]
}

fn others() -> Vec<Golden> {
    let import = Imported {
        url: "https://example.org/acme/app".to_owned(),
        commit: CommitId::from_bytes([0xc0; 20]),
        tree: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        time: 1_772_953_200,
        workspace: root(0x20, false),
        blobs: root(0x21, false),
        git: root(0x22, false),
        attributes: true,
        warnings: Warnings {
            first: vec![
                Warning { kind: WarningKind::Submodule, path: "vendor/x".to_owned() },
                Warning { kind: WarningKind::LfsPointer, path: "big.bin".to_owned() },
                Warning { kind: WarningKind::NotUtf8, path: "\\xff".to_owned() },
            ],
            total: 4,
        },
        dropped: false,
    };
    let dropped = Imported { dropped: true, warnings: Warnings::default(), ..import.clone() };
    let process = Process { host: "5a1f pid:[4026531836]".to_owned(), pid: 4711, started: 123_456 };
    let replica = ReplicaRecord {
        owner: owner(),
        url: Some("http://127.0.0.1:7070".to_owned()),
        version: "0.1.0".to_owned(),
        process: Some(process),
        started: AT,
        lease_ms: 60_000,
    };
    let command = ReplicaRecord { url: None, process: None, lease_ms: 1_000, ..replica.clone() };
    let abilities = Abilities { checks_uploads: true, exclusive_create: true, conditional_update: false };
    vec![
        golden("", import),
        golden("dropped", dropped),
        golden("", replica),
        golden("command", command),
        golden("", Marker { created: AT }),
        golden("", Scratch { round: 2 }),
        golden("", Remembered { abilities, at: AT }),
    ]
}

fn documents() -> Vec<Golden> {
    [heads(), runs(), queued(), schedules(), others()].into_iter().flatten().collect()
}

/// Frames with their plain bytes. What zstd makes of them may be other bytes with another zstd; what it reads may not.
fn frames() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let text = b"fn main() { println!(\"hello\"); }\n".repeat(20);
    let raw: Vec<u8> = (0..=255).collect();
    let page = hex::decode("83014382008083808080").unwrap();
    vec![
        ("raw", raw.clone(), frame::encode(&raw).unwrap()),
        ("zstd", text.clone(), frame::encode(&text).unwrap()),
        ("page", page.clone(), frame::encode_page(&page).unwrap()),
    ]
}

/// Fields of a text file of blocks: `# name`, then lines of a word and a value.
fn blocks(text: &str) -> Vec<(String, std::collections::BTreeMap<String, String>)> {
    text.trim()
        .split("\n\n")
        .map(|block| {
            let (name, fields) = block.split_once('\n').unwrap();
            let fields = fields.lines().map(|line| line.split_once(' ').unwrap()).map(|(key, value)| (key.to_owned(), value.to_owned()));
            (name.strip_prefix("# ").unwrap().to_owned(), fields.collect())
        })
        .collect()
}

fn frames_text() -> String {
    frames()
        .iter()
        .map(|(name, plain, stored)| format!("# {name}\nplain {}\nstored {}\n\n", hex::encode(plain), hex::encode(stored)))
        .collect()
}

const SALT: pack::Salt = [0x5a; pack::SALT_LEN];

fn pack_text() -> String {
    let mut builder = PackBuilder::new();
    for (name, plain, stored) in frames() {
        let kind = if name == "page" { FrameKind::Page } else { FrameKind::Content };
        let len = u32::try_from(plain.len()).unwrap();
        let objects = if name == "zstd" { vec![1, len - 1] } else { vec![len] };
        builder.push(kind, &stored, objects).unwrap();
    }
    let (id, bytes, _) = builder.finish(&SALT);
    let (none, empty, _) = PackBuilder::new().finish(&SALT);
    format!("# pack\nid {id}\nstored {}\n\n# empty\nid {none}\nstored {}\n\n", hex::encode(&bytes), hex::encode(&empty))
}

fn checkpoints_text() -> String {
    [("full", checkpoint(0x10)), ("plain", plain_checkpoint())]
        .iter()
        .map(|(name, checkpoint)| {
            let json = serde_json::to_string(checkpoint).unwrap();
            format!("# {name}\nid {}\ncanonical {}\njson {json}\n\n", checkpoint.id, hex::encode(root_codec::canonical(&checkpoint.root)))
        })
        .collect()
}

fn read(file: &str) -> Vec<u8> {
    let path = folder().join(file);
    std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}. A new kind of object needs a golden file: ARCHITECTURE.md, \"Golden files\"", path.display())
    })
}

fn read_text(file: &str) -> String {
    String::from_utf8(read(file)).unwrap()
}

#[test]
fn documents_are_read_and_written_as_ever() {
    for golden in documents() {
        (golden.check)(&read(&format!("documents/{}", golden.file)));
    }
}

#[test]
fn a_head_that_asks_for_a_newer_reader_is_left_alone() {
    let stored = read("documents/head.json");
    for (reader, more) in [("2", ""), ("4294967295", "\"more\":[],")] {
        let newer =
            relabelled(&stored, "head", 1, |rest| rest.replacen("\"min_reader\":1,", &format!("{more}\"min_reader\":{reader},"), 1));
        let error = document::decode::<Head>("head.json", &newer).unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::TooNew, "too_new"), "{error:?}");
    }
}

#[test]
fn frames_are_read_as_ever() {
    let stored = blocks(&read_text("frames.txt"));
    assert_eq!(stored.len(), frames().len());
    for ((name, fields), (expected, plain, encoded)) in stored.iter().zip(frames()) {
        let frame = hex::decode(&fields["stored"]).unwrap();
        assert_eq!((name.as_str(), &hex::decode(&fields["plain"]).unwrap()), (expected, &plain));
        assert_eq!(frame::decode(&frame.clone().into()).unwrap(), plain, "{name}");
        assert_eq!(frame::decode(&encoded.clone().into()).unwrap(), plain, "{name}");
        // A raw frame has one form; so has the header of the others.
        assert_eq!(
            if name == "raw" { &encoded[..] } else { &encoded[..frame::FRAME_HEADER] },
            &frame[..if name == "raw" { frame.len() } else { frame::FRAME_HEADER }]
        );
        // Frames have no version of their own: a codec of later times isn't guessed at.
        let mut later = frame;
        later[0] = 2;
        assert_eq!(frame::decode(&later.into()).unwrap_err().stable_code(), "frame_damaged", "{name}");
    }
}

#[test]
fn packs_are_read_and_put_together_as_ever() {
    for (name, fields) in blocks(&read_text("packs.txt")) {
        let stored = Bytes::from(hex::decode(&fields["stored"]).unwrap());
        let id: PackId = fields["id"].parse().unwrap();
        let frames = pack::check(id, &stored).unwrap();
        assert_eq!(frames.len(), if name == "empty" { 0 } else { 3 });
        let mut builder = PackBuilder::new();
        for FrameEntry { kind, offset, stored: len, objects, .. } in frames {
            let from = offset as usize;
            builder.push(kind, &stored[from..from + len as usize], objects).unwrap();
        }
        let (again, bytes, _) = builder.finish(&SALT);
        assert_eq!((again, &bytes), (id, &stored), "{name} is put together in another form now");

        // The footer begins with its version, behind an array's head.
        let mut newer = stored.to_vec();
        let length = u32::from_le_bytes(*stored[stored.len() - pack::TRAILER..].first_chunk().unwrap()) as usize;
        let footer = stored.len() - pack::TRAILER - length;
        newer[footer + 1] += 1;
        let newer = Bytes::from(newer);
        let id = PackId::of(&newer);
        let error = pack::check(id, &newer).unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::TooNew, "pack_too_new"), "{error:?}");
        assert!(error.message().contains(&id.to_string()) && error.next_step().is_some(), "{error:?}");
    }
}

#[test]
fn checkpoints_have_their_ids_for_ever() {
    assert_eq!(checkpoints_text(), read_text("checkpoints.txt"));
    for (name, fields) in blocks(&read_text("checkpoints.txt")) {
        let read: Checkpoint = serde_json::from_str(&fields["json"]).unwrap();
        assert_eq!(read.id.to_string(), fields["id"], "{name}");
        let mut tagged = root_codec::CHECKPOINT_TAG.to_vec();
        tagged.extend_from_slice(&hex::decode(&fields["canonical"]).unwrap());
        assert_eq!(sha256(&tagged).to_string(), fields["id"], "{name}");
    }
}

/// What `host/docs/FORMAT.md` says lies at a key. A new key has to be added here, and so to the page and to the golden files.
fn stored_as(key: &Key) -> &'static str {
    match key {
        Key::Marker => "document `store`",
        Key::Head(_) => "document `head`",
        Key::SessionPack(..) | Key::RepositoryPack(..) => "pack",
        Key::Input(..) => "plain bytes",
        Key::Run(..) => "document `run`",
        Key::Import(..) => "document `import`",
        Key::Queue(..) => "document `queued`",
        Key::Plan(_) => "document `plan`",
        Key::ScheduleState(_) => "document `schedule`",
        Key::Claim(..) => "document `claim`",
        Key::Replica(..) => "document `replica`",
        Key::Probe(_) => "any bytes",
    }
}

#[test]
fn every_kind_of_object_has_a_golden_file() {
    let (digest, nonce) = (sha256(b""), Nonce::from_bytes([0; 16]));
    let (pack, commit) = (PackId::from_bytes([0; 32]), CommitId::from_bytes([0; 20]));
    let schedule: crate::id::ScheduleId = "nightly".parse().unwrap();
    let keys = [
        Key::Marker,
        Key::Head(session()),
        Key::SessionPack(session(), pack),
        Key::Input(session(), digest),
        Key::Run(session(), run(1)),
        Key::Import(digest, commit),
        Key::RepositoryPack(digest, pack),
        Key::Queue(SessionHash::of(&session()), run(1)),
        Key::Plan(schedule.clone()),
        Key::ScheduleState(schedule.clone()),
        Key::Claim(schedule, crate::tick::TickName::Triggered(run(1))),
        Key::Replica("host".parse().unwrap(), nonce),
        Key::Probe(nonce),
    ];
    let format = include_str!("../docs/FORMAT.md");
    // The rows of section 1: key, words, kind.
    let (_, section) = format.split_once("## 1. Keys").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), keys.len(), "the page has a row for each key, and no other");
    let shape = |key: &str| -> Vec<usize> { vec![key.split('/').count()] };
    let mut wanted = BTreeSet::new();
    for (row, key) in rows.iter().zip(&keys) {
        let [form, _, kind] = row[..] else { panic!("{row:?}") };
        let (form, text) = (form.trim_matches('`'), key.to_string());
        assert_eq!((shape(form), form.split('/').next()), (shape(&text), text.split('/').next()), "the rows are in the order of the keys");
        assert_eq!(kind, stored_as(key), "{form}");
        match kind.strip_prefix("document `") {
            Some(kind) => drop(wanted.insert(kind.trim_end_matches('`').to_owned())),
            None if kind == "pack" => drop(read("packs.txt")),
            None => {}
        }
    }
    // What lies below `probe/` has a form too, though nobody has to know it.
    wanted.extend(["probe", "probed"].map(str::to_owned));

    let goldens = documents();
    let kinds: BTreeSet<String> = goldens.iter().map(|golden| golden.kind.to_owned()).collect();
    assert_eq!(kinds, wanted, "kinds with a golden value, and kinds that the page names");
    let mut found = BTreeSet::new();
    kinds_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, wanted, "kinds in the code, and kinds that the page names");
    for kind in kinds.iter().filter(|kind| !kind.starts_with("probe")) {
        assert!(format.contains(&format!("**`{kind}`**: ")), "section 7 of the page doesn't describe {kind}");
    }
    // Files that no value belongs to are read by nobody.
    let there: BTreeSet<String> =
        std::fs::read_dir(folder().join("documents")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, goldens.iter().map(|golden| golden.file.clone()).collect());
}

/// Kinds of documents in the source; tests make some of their own.
fn kinds_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            kinds_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("golden.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            found.extend(code.split("const KIND: &'static str = \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
}

/// Not a test by itself: writes golden files that aren't there. To write one anew, delete it first, and have a reason that stores agree with.
#[test]
#[ignore = "writes files: see ARCHITECTURE.md, \"Golden files\""]
fn write_what_is_missing() {
    let mut files: Vec<(String, Vec<u8>)> =
        documents().into_iter().map(|golden| (format!("documents/{}", golden.file), golden.bytes.to_vec())).collect();
    for (file, text) in [("frames.txt", frames_text()), ("packs.txt", pack_text()), ("checkpoints.txt", checkpoints_text())] {
        files.push((file.to_owned(), text.into_bytes()));
    }
    std::fs::create_dir_all(folder().join("documents")).unwrap();
    for (file, bytes) in files {
        let path = folder().join(file);
        match std::fs::File::create_new(&path) {
            Ok(mut file) => std::io::Write::write_all(&mut file, &bytes).unwrap(),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}
