//! The object store and the network to it, with all that they do to a request: delays, reordering, lost answers, refusals, repeated and late writes.
//!
//! A request has two ways to go, there and back, and both take their own time. What was sent lands also when its sender has died meanwhile. The
//! store itself is strongly consistent, and its ETags are hashes of the content, as S3 has them: equal bytes have equal tags.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::dice::Dice;
use super::timeline::{BEGINNING, Effect, Target};
use super::{Action, World};

/// How often something goes wrong with a request, each in ten thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Nothing happens, and the answer is an error.
    pub refused: u64,
    /// The write takes effect, and the answer is an error.
    pub answer_lost: u64,
    /// The write takes effect twice, as when the client library or a proxy repeats it.
    pub repeated: u64,
    /// The answer is a time-out, and the write takes effect some time later.
    pub late: u64,
    /// The request is lost on its way; the answer is a time-out.
    pub dropped: u64,
    /// The process that wrote dies in the instant in which the write takes effect.
    pub dies_writing: u64,
    /// The process that wrote is frozen in that instant, often for longer than a lease.
    pub freezes_writing: u64,
    /// The longest way there or back.
    pub slowest: Duration,
    /// Where processes fall asleep for longer than a lease.
    pub ambush: Option<Ambush>,
}

/// A place in a turn where a process is frozen for longer than a lease, so that another goes on with what it was at.
#[derive(Clone, Copy, Debug)]
pub struct Ambush {
    /// Part of the key of the object whose write has just taken effect.
    pub part: &'static str,
    /// How often, in ten thousand.
    pub often: u64,
}

impl Ambush {
    /// Between a turn's packs and its record, between its record and its commit, and right after it has the lease or was committed.
    const PARTS: [&'static str; 3] = ["/packs/", "/runs/", "/head"];

    /// Draws one.
    #[must_use]
    pub fn draw(dice: &Dice) -> Self {
        Self { part: dice.pick(&Self::PARTS), often: dice.pick(&[1_500, 4_000]) }
    }
}

impl Weather {
    /// No faults, and a short way.
    pub const FINE: Self = Self {
        refused: 0,
        answer_lost: 0,
        repeated: 0,
        late: 0,
        dropped: 0,
        dies_writing: 0,
        freezes_writing: 0,
        slowest: Duration::from_millis(30),
        ambush: None,
    };

    /// Draws one: which faults there are at all, and how many of them.
    #[must_use]
    pub fn draw(dice: &Dice) -> Self {
        let rate = |often: &[u64]| if dice.chance(5_000) { dice.pick(often) } else { 0 };
        Self {
            refused: rate(&[50, 200, 1_000]),
            answer_lost: rate(&[50, 300, 1_500]),
            repeated: rate(&[50, 300, 1_500]),
            late: rate(&[50, 200, 600]),
            dropped: rate(&[50, 200]),
            dies_writing: rate(&[100, 400, 1_000]),
            freezes_writing: rate(&[100, 400]),
            slowest: dice.pick(&[Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(5)]),
            ambush: None,
        }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Fine,
    Refused(Answer),
    AnswerLost(Answer),
    Repeated { first_answers: bool },
    Late(Duration),
    Dropped,
}

/// How a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Status(u16),
    Reset,
    TimedOut,
}

impl Answer {
    fn error(self, path: &str) -> Error {
        let io = |kind: std::io::ErrorKind| Error::Generic { store: "simulated", source: Box::new(std::io::Error::from(kind)) };
        match self {
            Self::Status(409) => Error::AlreadyExists { path: path.to_owned(), source: "409 ConditionalRequestConflict".into() },
            Self::Status(412) => Error::Precondition { path: path.to_owned(), source: "412 PreconditionFailed".into() },
            Self::Status(status) => Error::Generic { store: "simulated", source: format!("server returned status {status}").into() },
            Self::Reset => io(std::io::ErrorKind::ConnectionReset),
            Self::TimedOut => io(std::io::ErrorKind::TimedOut),
        }
    }
}

/// The objects.
#[derive(Clone, Debug, Default)]
pub struct Objects(BTreeMap<String, Stored>);

#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    modified: Duration,
}

impl Stored {
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.bytes);
        format!("\"{:016x}\"", hasher.finish())
    }

    fn meta(&self, path: &str) -> ObjectMeta {
        // HTTP dates are whole seconds (RFC 9110 5.6.7).
        let since = i64::try_from(self.modified.as_secs()).unwrap_or(0).saturating_mul(1_000_000_000);
        ObjectMeta {
            location: Path::from(path),
            last_modified: chrono::DateTime::from_timestamp_nanos(BEGINNING + since),
            size: self.bytes.len() as u64,
            e_tag: Some(self.tag()),
            version: None,
        }
    }
}

impl Objects {
    /// Returns an object's bytes.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Bytes> {
        self.0.get(path).map(|stored| &stored.bytes)
    }

    /// Returns the paths that begin with a prefix.
    pub fn below<'o>(&'o self, prefix: &'o str) -> impl Iterator<Item = &'o str> {
        self.0.range(prefix.to_owned()..).map(|(path, _)| path.as_str()).take_while(move |path| path.starts_with(prefix))
    }

    /// Copies all of them to another store.
    ///
    /// # Errors
    /// That store's own.
    pub async fn copy_to(&self, other: &dyn ObjectStore) -> Result<()> {
        for (path, stored) in &self.0 {
            other.put_opts(&Path::from(path.as_str()), stored.bytes.clone().into(), PutOptions::default()).await?;
        }
        Ok(())
    }

    fn put(&mut self, path: &str, bytes: &Bytes, mode: &PutMode, modified: Duration) -> Result<PutResult> {
        let there = self.0.get(path);
        match (mode, there) {
            (PutMode::Create, Some(_)) => {
                return Err(Error::AlreadyExists { path: path.to_owned(), source: "412 PreconditionFailed".into() });
            }
            (PutMode::Update(expected), there) if there.map(Stored::tag) != expected.e_tag => {
                return Err(Answer::Status(412).error(path));
            }
            _ => {}
        }
        let stored = Stored { bytes: bytes.clone(), modified };
        let e_tag = Some(stored.tag());
        self.0.insert(path.to_owned(), stored);
        Ok(PutResult { e_tag, version: None, extensions: Default::default() })
    }
}

/// A process's connection to the store.
#[derive(Clone)]
pub struct Connection {
    /// The world with the store.
    pub world: Arc<World>,
    /// The machine's number.
    pub machine: usize,
    /// Which start of its process.
    pub boot: u64,
}

impl Connection {
    fn process(&self) -> Target {
        Target::Process(self.machine, self.boot)
    }

    fn way(&self) -> Duration {
        self.world.dice.span(Duration::from_millis(1), self.world.weather().slowest)
    }

    fn fate(&self, conditional: bool, writes: bool) -> Fate {
        let (dice, weather) = (&self.world.dice, self.world.weather());
        if self.world.cut_off[self.machine].load(Ordering::Relaxed) {
            return Fate::Dropped;
        }
        let mut roll = dice.below(10_000);
        let mut happens = |often: u64| {
            let hit = roll < often;
            roll = if hit { u64::MAX } else { roll - often.min(roll) };
            hit
        };
        let plain: &[Answer] = &[Answer::Status(500), Answer::Status(503), Answer::Reset];
        if happens(weather.refused) {
            let conflict = conditional && dice.chance(3_000);
            return Fate::Refused(if conflict { Answer::Status(409) } else { dice.pick(plain) });
        }
        if happens(weather.dropped) {
            return Fate::Dropped;
        }
        if !writes {
            return Fate::Fine;
        }
        if happens(weather.answer_lost) {
            let conflict = conditional && dice.chance(5_000);
            return Fate::AnswerLost(if conflict { dice.pick(&[Answer::Status(409), Answer::Status(412)]) } else { dice.pick(plain) });
        }
        if happens(weather.repeated) {
            return Fate::Repeated { first_answers: dice.chance(5_000) };
        }
        if happens(weather.late) {
            return Fate::Late(dice.span(Duration::from_millis(50), Duration::from_secs(240)));
        }
        Fate::Fine
    }

    /// Sends a request: `apply` is what the store does when it arrives.
    async fn request<T: Send + 'static>(
        &self,
        verb: &'static str,
        path: &str,
        conditional: bool,
        writes: bool,
        mut apply: impl FnMut(&World) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let fate = self.fate(conditional, writes);
        let (there, back) = (self.way(), self.way());
        let weather = self.world.weather();
        let dies = writes && self.world.dice.chance(weather.dies_writing);
        let freezes = writes && !dies && self.world.dice.chance(weather.freezes_writing);
        let ambushed = writes && weather.ambush.is_some_and(|at| path.contains(at.part) && self.world.dice.chance(at.often));
        // Long enough for others to notice and go on, and often short enough to wake while they do.
        let asleep = ambushed.then(|| Duration::from_secs(self.world.dice.between(62, 150)));
        // What is still in the sender's buffers dies with it, or doesn't.
        let outlives = self.world.dice.chance(5_000);
        let process = self.process();
        let (machine, boot) = (self.machine, self.boot);
        let path = path.to_owned();
        self.world.note(
            machine,
            || format!("{verb} {path}: {fate:?}{}", if dies { ", dies" } else { "" }),
            |hash| {
                hash.write(verb.as_bytes());
                hash.write(path.as_bytes());
            },
        );
        let (answer, answered) = tokio::sync::oneshot::channel();
        let world = Arc::clone(&self.world);
        let timeline = Arc::clone(&self.world.timeline);
        let mut land = {
            let (world, path) = (Arc::clone(&world), path.clone());
            let mut first = true;
            move || {
                if !outlives && !world.is_running(machine, boot) {
                    return Err(Answer::Reset.error(&path));
                }
                let result = apply(&world);
                if std::mem::take(&mut first) {
                    if dies {
                        world.timeline.after(Duration::ZERO, Target::World, Effect::Act(Action::Crash(machine, boot)));
                    }
                    if freezes {
                        world.timeline.after(Duration::ZERO, Target::World, Effect::Act(Action::Freeze(machine)));
                    }
                    if let Some(span) = asleep {
                        world.timeline.after(Duration::ZERO, Target::World, Effect::Act(Action::FreezeFor(machine, span)));
                    }
                }
                result
            }
        };
        let reply = move |world: &World, after: Duration, result: Result<T>| {
            world.timeline.call_after(after, process, move || drop(answer.send(result)));
        };
        match fate {
            Fate::Fine => timeline.call_after(there, Target::World, move || {
                let result = land();
                reply(&world, back, result);
            }),
            Fate::Refused(how) => reply(&world, there + back, Err(how.error(&path))),
            Fate::AnswerLost(how) => timeline.call_after(there, Target::World, move || {
                let _ = land();
                reply(&world, back, Err(how.error(&path)));
            }),
            Fate::Repeated { first_answers } => {
                let gap = self.world.dice.span(Duration::from_millis(5), Duration::from_secs(30));
                timeline.call_after(there, Target::World, move || {
                    let result = land();
                    if first_answers {
                        reply(&world, back, result);
                        world.timeline.call_after(gap, Target::World, move || drop(land()));
                    } else {
                        let later = Arc::clone(&world);
                        world.timeline.call_after(gap, Target::World, move || {
                            let result = land();
                            reply(&later, back, result);
                        });
                    }
                });
            }
            Fate::Late(delay) => {
                let patience = self.world.dice.span(Duration::from_secs(1), Duration::from_secs(30));
                reply(&world, patience, Err(Answer::TimedOut.error(&path)));
                timeline.call_after(patience + delay, Target::World, move || drop(land()));
            }
            Fate::Dropped => {
                let patience = self.world.dice.span(Duration::from_secs(1), Duration::from_secs(30));
                reply(&world, patience, Err(Answer::TimedOut.error(&path)));
            }
        }
        match answered.await {
            Ok(result) => result,
            // The process has ended: nobody polls this any more.
            Err(_) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated store")
    }
}

fn missing(path: &str) -> Error {
    Error::NotFound { path: path.to_owned(), source: "404 NoSuchKey".into() }
}

#[async_trait::async_trait]
impl ObjectStore for Connection {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (path, bytes, mode) = (location.to_string(), Bytes::from(payload), opts.mode);
        let conditional = mode != PutMode::Overwrite;
        let machine = self.machine;
        self.request("put", location.as_ref(), conditional, true, move |world| {
            let before = world.objects().get(&path).cloned();
            let result = world.objects().put(&path, &bytes, &mode, world.timeline.now());
            world.note(
                machine,
                || format!("landed {path}: {}", if result.is_ok() { "done" } else { "refused" }),
                |hash| {
                    hash.write(&bytes);
                    hash.write_u8(u8::from(result.is_ok()));
                },
            );
            if result.is_ok() {
                world.oracle().wrote(world, &path, before.as_ref(), &bytes);
            }
            result
        })
        .await
    }

    async fn put_multipart_opts(&self, _location: &Path, _opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented { operation: "put_multipart".to_owned(), implementer: "the simulated store".to_owned() })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.to_string();
        self.request("get", location.as_ref(), false, false, move |world| {
            let stored = world.objects().0.get(&path).cloned().ok_or_else(|| missing(&path))?;
            let meta = stored.meta(&path);
            options.check_preconditions(&meta)?;
            let range = match &options.range {
                Some(range) => range.as_range(meta.size).map_err(|error| Error::Generic { store: "simulated", source: Box::new(error) })?,
                None => 0..meta.size,
            };
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            let bytes = if options.head { Bytes::new() } else { stored.bytes.slice(place(range.start)..place(range.end)) };
            let payload = GetResultPayload::Stream(futures::stream::once(std::future::ready(Ok(bytes))).boxed());
            Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
        })
        .await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let connection = self.clone();
        locations
            .then(move |location| {
                let connection = connection.clone();
                async move {
                    let location = location?;
                    let path = location.to_string();
                    connection
                        .request("delete", location.as_ref(), false, true, move |world| {
                            let removed = world.objects().0.remove(&path);
                            if let Some(removed) = removed {
                                world.oracle().deleted(&path, &removed.bytes);
                            }
                            Ok(())
                        })
                        .await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let connection = self.clone();
        let prefix = prefix.map_or_else(String::new, |prefix| format!("{prefix}/"));
        futures::stream::once(async move {
            let below = prefix.clone();
            let found: Vec<ObjectMeta> = connection
                .request("list", &prefix, false, false, move |world| {
                    let objects = world.objects();
                    Ok(objects.below(&below).map(|path| objects.0[path].meta(path)).collect())
                })
                .await?;
            Ok::<_, Error>(futures::stream::iter(found.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map_or_else(String::new, |prefix| format!("{prefix}/"));
        let below = prefix.clone();
        self.request("list", &prefix, false, false, move |world| {
            let objects = world.objects();
            let (mut folders, mut here) = (BTreeSet::new(), Vec::new());
            for path in objects.below(&below) {
                match path[below.len()..].split_once('/') {
                    Some((folder, _)) => drop(folders.insert(format!("{below}{folder}"))),
                    None => here.push(objects.0[path].meta(path)),
                }
            }
            let common_prefixes = folders.into_iter().map(Path::from).collect();
            Ok(ListResult { objects: here, common_prefixes, extensions: Default::default() })
        })
        .await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".to_owned(), implementer: "the simulated store".to_owned() })
    }
}
