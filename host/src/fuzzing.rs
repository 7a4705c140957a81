//! What fuzzing calls: each function takes bytes that nobody vouches for, decodes them, and checks what has to hold behind it. It panics where
//! that doesn't hold, and for nothing else.
//!
//! `tests/fuzz` hands these functions to libFuzzer, and `tests/it/fuzz.rs` calls them with mutations of the golden files in each run of the tests.
//! They are compiled in only with the feature `fuzzing`. Objects named by a hash are given their right name first: a stranger who can write
//! them can hash them, too.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a check that doesn't hold ends by panicking: that is what finds it"
)]

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;

use crate::checkpoint::import::{From, ImportOptions, import};
use crate::checkpoint::pack::{self, PackBuilder};
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::verify::{Depth, verify};
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::checkpoint::{frame, root_codec};
use crate::clock::SystemClock;
use crate::error::ErrorKind;
use crate::id::{ChunkId, PackId, PageId, RunId, SessionRef, sha256};
use crate::policy::hosts::{HostList, HostPattern};
use crate::policy::url::{Host, Target as Url, URL_MAX};
use crate::random::SystemRandom;
use crate::repository::attributes::{self, Rules};
use crate::repository::imported::Imported;
use crate::repository::objects::{parse_tree, write_tree};
use crate::repository::url::RepositoryUrl;
use crate::schedule::claim::Claim;
use crate::schedule::cron::Expression;
use crate::schedule::plan::{Plan, Source, Spec};
use crate::schedule::state::{Circumstances, State, Verdict};
use crate::schedule::zone::{Zone, Zones};
use crate::session::head::{self, Head};
use crate::session::queue::QueueEntry;
use crate::session::record::RunRecord;
use crate::session::replica::ReplicaRecord;
use crate::session::{Owner, Status};
use crate::store::document::{self, DOCUMENT_MAX, Document};
use crate::store::{Key, Nonce, Store};
use crate::tick::Tick;
use crate::workspace::Limits;
use crate::workspace::page::{Entry, Home, Location, PAGE_MAX, Page, Place, Root};
use crate::workspace::page_codec::{self, HintContext, Reference, Spot, references};
use crate::workspace::path;
use crate::workspace::source::Sink as _;

/// A function that takes a stranger's bytes.
pub type Target = fn(&[u8]);

macro_rules! targets {
    ($($name:ident,)*) => {
        /// All of them, by name.
        pub const TARGETS: &[(&str, Target)] = &[$((stringify!($name), $name),)*];
    };
}

targets! {
    attributes,
    claim,
    cron,
    directory_page,
    egress,
    frame,
    git_tree,
    head,
    import_record,
    key,
    link_table,
    list_page,
    name,
    pack,
    plan,
    queued,
    replica,
    repository_url,
    run,
    schedule,
    stored_page,
    tar,
}

/// A directory's page, or the split of one.
pub fn directory_page(data: &[u8]) {
    body(data, [0, 1]);
}

/// A list of a file's parts, or the split of one.
pub fn list_page(data: &[u8]) {
    body(data, [2, 3]);
}

/// A table of files with several names, or the split of one.
pub fn link_table(data: &[u8]) {
    body(data, [4, 5]);
}

/// Reads the bytes as a page's body, and as the items of bodies of these kinds.
fn body(data: &[u8], kinds: [u8; 2]) {
    page_body(&Bytes::copy_from_slice(data));
    for kind in kinds {
        page_body(&[&[0x82, kind], data].concat().into());
    }
}

fn page_body(body: &Bytes) {
    match page_codec::decode_body(body) {
        Ok(page) => sound(&page, body),
        Err(error) => assert_eq!(error.stable_code(), "page_damaged", "{error:?}"),
    }
}

/// What holds for every page that was read.
fn sound(page: &Page, body: &Bytes) {
    assert!(body.len() <= PAGE_MAX);
    // One page has one form.
    assert_eq!(page_codec::encode_body(page), body[..]);
    page_codec::check_page(page).expect("a page that was read keeps the rules");
    let items = match page {
        Page::Directory(entries) => {
            assert!(entries.iter().all(is_name), "{entries:?}");
            assert!(entries.is_sorted_by(|a, b| a.name < b.name), "{entries:?}");
            entries.len()
        }
        Page::Split(slots) => slots.len(),
        Page::List(parts) => parts.len(),
        Page::ListSplit(children) | Page::LinkTableSplit(children) => children.len(),
        Page::LinkTable(files) => files.len(),
    };
    // Every item takes a byte at least: what is declared beyond that was never made room for.
    assert!(items < body.len());
}

fn is_name(entry: &Entry) -> bool {
    let name = &entry.name[..];
    (1..=255).contains(&name.len()) && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

fn somewhere() -> Location {
    let home = Home::Session(SessionRef { agent: "reviewer".parse().unwrap(), session: "fix 42".parse().unwrap() });
    Location { home: Arc::new(home), pack: PackId::from_bytes([0xee; 32]), frame: 5308, stored: 700, start: 0, len: 900 }
}

/// A page with its hints, as a frame holds it.
pub fn stored_page(data: &[u8]) {
    struct Nothing(Home);
    impl HintContext for Nothing {
        fn home(&self) -> &Home {
            &self.0
        }
        fn chunk(&self, _: ChunkId) -> Option<Spot> {
            None
        }
        fn page(&self, _: PageId) -> Option<Spot> {
            None
        }
    }

    // `[version, body, hints]`: the id is that of the body that is there.
    let mut reader = minicbor::Decoder::new(data);
    let found = (|| {
        reader.array().ok()?;
        reader.u64().ok()?;
        reader.bytes().ok()
    })();
    let body = Bytes::copy_from_slice(found.unwrap_or_default());
    let (id, from) = (page_codec::page_id(&body), somewhere());
    let page = match page_codec::decode_stored(id, &Bytes::copy_from_slice(data), &from) {
        Ok(page) => page,
        Err(error) => {
            assert!(matches!(error.stable_code(), "page_damaged" | "page_too_new"), "{error:?}");
            return;
        }
    };
    sound(&page, &body);
    references(&page, &mut |reference| {
        let place = match &reference {
            Reference::Page(link) => &link.place,
            Reference::Chunk(link, _) => &link.place,
        };
        let Place::At(at) = place else { panic!("{reference} lies nowhere") };
        root_codec::check_location(at).expect("a hint leads into a pack");
        if let Reference::Chunk(_, len) = reference {
            assert_eq!(at.len, len);
        }
    });
    match page_codec::encode_stored(&page, &Nothing(Home::clone(&from.home))) {
        Ok(again) => assert_eq!(page_codec::decode_stored(id, &again.into(), &from).expect("what was written is read"), page),
        // Written from elsewhere, hints may take more room.
        Err(error) => assert!(data.len() > page_codec::STORED_PAGE_MAX / 4, "{error:?}"),
    }
}

/// A frame; the bytes are read as one, and made to one.
pub fn frame(data: &[u8]) {
    match frame::decode(&Bytes::copy_from_slice(data)) {
        Ok(plain) => {
            assert_eq!(plain.len(), frame::plain_len(data).unwrap());
            assert!((1..=frame::FRAME_PLAIN_MAX).contains(&plain.len()));
        }
        Err(error) => assert_eq!(error.stable_code(), "frame_damaged", "{error:?}"),
    }
    for stored in [frame::encode(data), frame::encode_page(data)] {
        match stored {
            Ok(stored) => {
                assert!(stored.len() <= frame::FRAME_STORED_MAX + 64);
                assert_eq!(frame::decode(&stored.into()).expect("what was written is read"), data);
            }
            Err(_) => assert!(data.is_empty() || data.len() > frame::FRAME_PLAIN_MAX),
        }
    }
}

/// A pack, by its right name: the bytes as a whole, and as frames with a footer behind them.
pub fn pack(data: &[u8]) {
    whole_pack(&Bytes::copy_from_slice(data));
    if let [low, high, rest @ ..] = data {
        let (frames, footer) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        let length = u32::try_from(footer.len()).unwrap_or(u32::MAX).to_le_bytes();
        whole_pack(&[pack::MAGIC, frames, footer, &length, pack::END_MAGIC].concat().into());
    }
}

fn whole_pack(bytes: &Bytes) {
    let id = PackId::of(bytes);
    let frames = match pack::check(id, bytes) {
        Ok(frames) => frames,
        Err(error) => {
            assert!(matches!(error.stable_code(), "pack_damaged" | "pack_too_new"), "{error:?}");
            return;
        }
    };
    let salt = bytes[..bytes.len() - pack::TRAILER].last_chunk().expect("a footer ends with its salt");
    let mut builder = PackBuilder::new();
    let mut objects = 0;
    for frame in &frames {
        objects += frame.objects.len();
        let (from, to) = (frame.offset as usize, frame.offset as usize + frame.stored as usize);
        builder.push(frame.kind, &bytes[from..to], frame.objects.clone()).expect("a pack that was read can be put together");
    }
    assert!(objects <= bytes.len() * frame::FRAME_PLAIN_MAX && objects <= pack::OBJECTS_MAX);
    // One pack has one form.
    assert_eq!(&builder.finish(salt).1, bytes);
}

fn write_nonces() -> Vec<Nonce> {
    (1..=2).map(|n| Nonce::from_bytes([n; 16])).collect()
}

fn documented<T: Document>(version: u32, rest: &[u8]) -> Vec<u8> {
    let head = format!("landfall:document:{}:{version}\n", T::KIND);
    let sum = sha256(&[head.as_bytes(), rest].concat());
    [format!("{{\"landfall\":\"{}\",\"version\":{version},\"sha256\":\"{sum}\",", T::KIND).as_bytes(), rest].concat()
}

/// Reads the bytes as a document as they are, as one whose digest is made right, and as the body of one. Returns the values.
fn documents<T: Document + PartialEq + Debug>(data: &[u8]) -> Vec<T> {
    let [first, second] = write_nonces()[..] else { return Vec::new() };
    let mut forms = vec![data.to_vec()];
    if let Some(at) = data.windows(8).position(|window| window == b"\"nonce\":") {
        forms.push(documented::<T>(T::VERSION, &data[at..]));
        forms.push(documented::<T>(T::VERSION + 1, &data[at..]));
    }
    let open = format!("\"nonce\":\"{first}\",\"nonces\":[\"{second}\"],\"body\":");
    forms.push(documented::<T>(T::VERSION, &[open.as_bytes(), data, b"}\n"].concat()));
    let mut values = Vec::new();
    for form in forms {
        let read = match document::decode::<T>("it", &form) {
            Ok(read) => read,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::TooNew), "{error:?}");
                continue;
            }
        };
        assert!(form.len() <= DOCUMENT_MAX && (1..=document::NONCES_KEPT).contains(&read.nonces.len()));
        read.value.check().expect("a document that was read keeps the rules");
        match document::encode(&read.value, &read.nonces) {
            Ok(again) => {
                let twice = document::decode::<T>("it", &again.bytes).expect("what was written is read");
                assert_eq!((&twice.value, &twice.nonces), (&read.value, &read.nonces));
            }
            // Fields that were left out are written.
            Err(error) => assert!(error.kind() == ErrorKind::Limit && form.len() > DOCUMENT_MAX / 2, "{error:?}"),
        }
        values.push(read.value);
    }
    values
}

fn owner() -> Owner {
    Owner { replica: "host".parse().unwrap(), boot: Nonce::from_bytes([0xb0; 16]) }
}

/// A session's head, and the changes that a turn makes to it.
pub fn head(data: &[u8]) {
    for found in documents::<Head>(data) {
        let run = RunId::new_v7(1, [1; 10]);
        let over = found.lease.as_ref().map(|lease| lease.epoch);
        let claim = head::Claim { owner: owner(), run: found.lease.as_ref().map_or(run, |lease| lease.run), over };
        let Ok(held) = found.acquire(&claim) else { continue };
        assert!(held.epoch > found.epoch, "a lease fences those before it");
        held.check().expect("a head with a lease keeps the rules");
        let proof = head::Proof { incarnation: held.incarnation, epoch: held.epoch, run: claim.run };
        let end = head::End { status: Status::Failed, record: sha256(data), checkpoint: None, packs: Vec::new(), restored: Vec::new() };
        let ended = held.end(&proof, &end).expect("whoever has the lease ends the run");
        assert_eq!(ended.seq, found.seq + 1);
        ended.check().expect("a head after a run keeps the rules");
    }
}

/// A run's record.
pub fn run(data: &[u8]) {
    documents::<RunRecord>(data);
}

/// A queue entry.
pub fn queued(data: &[u8]) {
    for entry in documents::<QueueEntry>(data) {
        entry.request().expect("a request has a digest");
        assert!(entry.attempts_allowed() > 0);
    }
}

/// The record of an import.
pub fn import_record(data: &[u8]) {
    for import in documents::<Imported>(data) {
        import.tree_id().expect("a tree's id was checked");
        assert!(import.warnings.texts().len() <= import.warnings.first.len() + 1);
    }
}

/// A replica's sign of life.
pub fn replica(data: &[u8]) {
    documents::<ReplicaRecord>(data);
}

/// A claim of a tick.
pub fn claim(data: &[u8]) {
    documents::<Claim>(data);
}

/// A schedule's plan, and what a new state makes of it.
pub fn plan(data: &[u8]) {
    for plan in documents::<Plan>(data) {
        assert!(plan.delay().as_secs() <= plan.spec.jitter);
        advance(State::new(&plan), &plan);
    }
}

/// A schedule's state, and what a poller makes of it by a plan.
pub fn schedule(data: &[u8]) {
    for state in documents::<State>(data) {
        let agent = "reviewer".parse().unwrap();
        let plan = Plan {
            id: state.id.clone(),
            generation: state.generation,
            spec: Spec { cron: Some("*/5 * * * *".to_owned()), retries: 2, ..Spec::on_demand(agent) },
            source: Source::Operator,
            armed_from: state.cursor,
            undeclared: None,
            removed: None,
            created: 0,
            changed: 0,
        };
        advance(state, &plan);
    }
}

fn advance(mut state: State, plan: &Plan) {
    let (zones, owner) = (Zones::default(), owner());
    // An hour after the instants of the golden files.
    let now = 1_772_956_800_000_000_000;
    let at = Circumstances { plan, now, zones: &zones, owner: &owner, verdict: &Verdict::Allowed };
    let _ = plan.spec.check(Tick::at_or_before(now));
    let cursor = state.cursor;
    if state.advance(&at).is_ok() {
        assert!(state.cursor >= cursor, "a cursor never goes back");
        let _ = state.wake_at(plan);
        state.check().expect("a state that went on keeps the rules");
    }
}

/// A tar archive, as an import reads it.
pub fn tar(data: &[u8]) {
    thread_local! {
        static RUNTIME: RefCell<tokio::runtime::Runtime> =
            RefCell::new(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    }
    let limits = Limits { entries: 1_000, bytes: 1 << 20, file: 1 << 20, ..Limits::default() };
    let work = async {
        let store = Store::memory(Arc::new(SystemClock), Arc::new(SystemRandom));
        let reader = Reader::new(store.clone(), None, 1 << 20);
        let mut writer = PackWriter::new(store.clone(), somewhere().home, WriterOptions::default());
        let from = From::Archive(Box::new(Cursor::new(data.to_vec())));
        let (root, done) = match import(&reader, &mut writer, from, &ImportOptions { limits, unsafe_links: false }).await {
            Ok(done) => done,
            Err(error) => {
                let kinds = [ErrorKind::Denied, ErrorKind::Limit, ErrorKind::Usage];
                assert!(kinds.contains(&error.kind()) && !error.message().is_empty(), "{error:?}");
                return;
            }
        };
        let empty = writer.page(Page::Directory(Vec::new())).await.unwrap();
        writer.finish().await.unwrap();
        let state = Root { page: writer.resolve(&empty).unwrap(), links: None, entries: 0, bytes: 0 };
        let workspace = writer.resolve_root(&root).unwrap();
        assert!(workspace.entries <= limits.entries && workspace.bytes <= limits.bytes);
        assert_eq!((workspace.entries, workspace.bytes), (done.entries, done.bytes));
        let checkpoint = Checkpoint::new(RootRecord { workspace, state, git: None, pin: None });
        let report = verify(&store, &checkpoint, Depth::Deep).await.unwrap();
        assert!(report.is_ok(), "{:?}", report.damage);
    };
    RUNTIME.with_borrow_mut(|runtime| runtime.block_on(work));
}

/// A pattern of a list, an URL and a `Location` header, a line each.
pub fn egress(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n');
    let (pattern, url, location) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let pattern = HostPattern::parse(pattern).ok();
    if let Some(pattern) = &pattern {
        assert_eq!(HostPattern::parse(pattern.as_str()).as_ref(), Ok(pattern));
    }
    let Ok(target) = Url::parse(url) else { return };
    judged(&target, pattern.as_ref());
    if let Ok(next) = target.join(location) {
        judged(&next, pattern.as_ref());
    }
}

fn judged(target: &Url, pattern: Option<&HostPattern>) {
    let origin = target.origin();
    assert!(target.path().starts_with('/') && target.path_and_query().starts_with(target.path()));
    assert!(target.url().username().is_empty() && target.url().password().is_none());
    if target.check_host().is_ok() {
        // What is sent is what was judged: read again it is the same place.
        if target.url().as_str().len() <= URL_MAX {
            assert_eq!(&Url::parse(target.url().as_str()).expect("a parsed URL can be parsed"), target);
        }
        match &origin.host {
            Host::Address(address) => assert!(crate::policy::addresses::classify(*address).is_allowed()),
            Host::Name(name) => {
                assert!(name.contains('.') && name.is_ascii() && name.len() <= 253, "{name:?}");
                assert!(name.parse::<std::net::IpAddr>().is_err(), "{name:?} is an address");
            }
        }
    }
    let Some(pattern) = pattern else { return };
    if pattern.covers(target, &Method::GET) {
        assert!(pattern.covers_place(target) && pattern.covers_host(&origin.host));
        assert!(pattern.scheme().is_none_or(|scheme| scheme == origin.scheme));
        assert!(pattern.port().is_none_or(|port| port == origin.port));
        if let Some(exact) = pattern.exact_host() {
            assert_eq!(crate::policy::url::host_key(exact), crate::policy::url::host_key(&origin.host.to_string()));
        }
        assert!(HostList::parse([pattern.as_str()]).is_ok_and(|list| list.covering(target, &Method::GET).is_some()));
    }
}

/// A repository's URL.
pub fn repository_url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(url) = RepositoryUrl::parse(&text) {
        // Two texts of one repository have one normal form.
        assert_eq!(RepositoryUrl::parse(url.as_str()).map_err(|error| error.chain()).as_ref(), Ok(&url));
        assert!(!url.as_str().split('/').nth(2).unwrap_or_default().contains('@'), "user info stays out of keys and records");
        assert!(crate::policy::repositories::allows(&[url.as_str().to_owned()], &url));
    }
}

/// A cron expression: a byte for the zone, four for the instant, and the text.
pub fn cron(data: &[u8]) {
    const ZONES: [&str; 6] = ["UTC", "Europe/London", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"];
    let [zone, a, b, c, d, text @ ..] = data else { return };
    let Ok(Some(expression)) = Expression::parse(&String::from_utf8_lossy(text)) else { return };
    assert!(!expression.reading().is_empty());
    let again = Expression::parse(expression.as_str()).expect("an expression can be read again").expect("it isn't blank");
    let zone = Zone::named(ZONES[usize::from(*zone) % ZONES.len()]).unwrap();
    let mut after = Tick::from_seconds(i64::from(u32::from_le_bytes([*a, *b, *c, *d])));
    for _ in 0..3 {
        let next = expression.next(&zone, after);
        assert_eq!(next, again.next(&zone, after));
        let Some(next) = next else { break };
        assert!(next > after && next.seconds() - after.seconds() <= 3660 * 86_400, "{next} after {after}");
        // Nothing lies between: from just before the tick it is the next one as well.
        assert_eq!(expression.next(&zone, next.plus(-1)), Some(next));
        after = next;
    }
}

/// A `.gitattributes` file, a path and a blob, with zero bytes between.
pub fn attributes(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let (file, path, blob) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Paths are those of a checkout: parts that are names, with slashes between.
    if path.is_empty() || path.split(|byte| *byte == b'/').any(|part| part.is_empty() || part == b"." || part == b"..") {
        return;
    }
    let rules = Rules::new([(&b""[..], file)]).expect("every file of attributes can be read");
    let mut pipeline = attributes::pipeline();
    let most = blob.len() * 16 + 64;
    if let Ok(Some(tree)) = attributes::to_worktree(&mut pipeline, &rules, path, &[0x11; 20], blob) {
        assert!(tree.len() <= most, "{} bytes of {}", tree.len(), blob.len());
    }
    if let Ok(stored) = attributes::to_git(&mut pipeline, &rules, path, Bytes::copy_from_slice(blob), None) {
        assert!(stored.len() <= most, "{} bytes of {}", stored.len(), blob.len());
    }
}

/// The body of a tree of git.
pub fn git_tree(data: &[u8]) {
    match parse_tree(data) {
        Ok(entries) => assert_eq!(parse_tree(&write_tree(&entries)).expect("what was written is read"), entries),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error:?}"),
    }
}

/// An object's key, as a listing brings it, and what people name sessions by.
pub fn key(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(key) = text.parse::<Key>() {
        assert_eq!(key.to_string(), text, "one object has one key");
        assert!(!text.split('/').any(|part| part.is_empty() || part.starts_with('.')), "{text}");
    }
    if let Ok(session) = crate::session::selector::parse_session(&text) {
        let key = Key::Head(session);
        assert_eq!(key.to_string().parse::<Key>().expect("a key that was made can be read"), key);
        assert_eq!(key.to_string().split('/').count(), 4);
    }
}

/// A name of any bytes, as it is shown to people and guests.
pub fn name(data: &[u8]) {
    let shown = path::display(data);
    if std::str::from_utf8(data).is_err() {
        assert_eq!(path::undisplay(shown.as_bytes()).as_deref(), Some(data), "{shown:?}");
    }
    let _ = path::is_dot_git(data);
}
