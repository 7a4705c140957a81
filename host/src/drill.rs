//! Crash points and safeguards that can be taken away: for tests that want the real program to die, freeze or go wrong at a chosen place.
//!
//! They are compiled in only with the feature `drills`, which the tests turn on, and never without debug assertions: a release build has none of
//! them, whatever features other packages of a build ask for. Everywhere else `pass` and `disabled` are nothing.

mod thread;

pub use self::thread::{TakenAway, take_away};

/// Whether this build has them.
pub const COMPILED: bool = cfg!(all(feature = "drills", debug_assertions));

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A place on the way of a turn, between two of its effects. `ARCHITECTURE.md` says what a crash at each leaves.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Point { $($(#[$doc])* $name,)* }

        impl Point {
            /// All of them, in the order of a turn.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

points! {
    /// Before the queue entry is made.
    AcceptBefore = "accept.before",
    /// The queue entry is made; nobody was told.
    AcceptAfter = "accept.after",
    /// Before the head names the run.
    LeaseBefore = "lease.before",
    /// The head names the run.
    LeaseAfter = "lease.after",
    /// Before the checkpoint is opened, or the commit resolved.
    OpenBefore = "open.before",
    /// Before a pack of an import is sent.
    ImportUploadBefore = "import.upload.before",
    /// A pack of an import is stored; nothing names it.
    ImportUploadAfter = "import.upload.after",
    /// The checkpoint is open.
    OpenAfter = "open.after",
    /// Before the component is instantiated.
    InstantiateBefore = "instantiate.before",
    /// In the middle of the guest's work, when it reports progress.
    RunDuring = "run.during",
    /// Before the packs of a named save.
    SaveBefore = "save.before",
    /// The packs of a named save are stored; the head doesn't name it.
    SavePacksStored = "save.packs.stored",
    /// The head names the save; the guest wasn't told.
    SaveAfter = "save.after",
    /// The guest has ended.
    RunAfter = "run.after",
    /// Before the edits become pages.
    CaptureBefore = "capture.before",
    /// The edits are pages and chunks.
    CaptureAfter = "capture.after",
    /// Before a pack or an input is sent.
    UploadBefore = "upload.before",
    /// A pack or an input is stored; nothing names it.
    UploadAfter = "upload.after",
    /// Before the run's record is written.
    RecordBefore = "record.before",
    /// The record is written; the head hasn't reached it.
    RecordAfter = "record.after",
    /// Before the head is moved.
    CommitBefore = "commit.before",
    /// The head has moved; nobody was told, and the queue entry is there.
    CommitAfter = "commit.after",
    /// The queue entry is gone; nobody was told.
    CleanAfter = "clean.after",
}

/// A rule without which something goes wrong: tests take one away and show that they notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Safeguard {
    /// Mutable objects are replaced only where they are the version that was read.
    CompareAndSwap,
    /// Every write has its own nonce.
    Nonces,
    /// A lease of a smaller epoch than the head's is over.
    Epochs,
    /// A record counts only when the head has reached its seq.
    OfficialRecords,
    /// A taker claims the record of a run that was begun, and so fences its earlier writers.
    RecordFence,
    /// An answer other than success is never believed: the object is read.
    UnknownOutcomes,
    /// What a tick's claim says is what runs, whoever made it.
    Claims,
    /// A tick is due by the store's clock, not by the machine's.
    StoreTime,
}

impl Safeguard {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::CompareAndSwap,
        Self::Nonces,
        Self::Epochs,
        Self::OfficialRecords,
        Self::RecordFence,
        Self::UnknownOutcomes,
        Self::Claims,
        Self::StoreTime,
    ];

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CompareAndSwap => "compare-and-swap",
            Self::Nonces => "nonces",
            Self::Epochs => "epochs",
            Self::OfficialRecords => "official-records",
            Self::RecordFence => "record-fence",
            Self::UnknownOutcomes => "unknown-outcomes",
            Self::Claims => "claims",
            Self::StoreTime => "store-time",
        }
    }
}

#[cfg(all(feature = "drills", debug_assertions))]
mod armed {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};

    use super::{Point, Safeguard};
    use crate::error::{Error, Result};

    #[derive(Debug, Default)]
    struct Orders {
        at: Option<(Point, bool)>,
        /// How often the point is passed before.
        skip: AtomicU32,
        without: Option<Safeguard>,
        hide_process: bool,
    }

    static ORDERS: OnceLock<Orders> = OnceLock::new();
    static QUIET: RwLock<()> = RwLock::new(());

    /// Says that this process can't be frozen now, because it would hold others up: until it is dropped.
    #[derive(Debug)]
    pub(crate) struct Busy(#[expect(dead_code, reason = "it is held")] RwLockReadGuard<'static, ()>);

    pub(crate) fn busy() -> Busy {
        Busy(QUIET.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives this process its orders, once: words separated by blanks. `kill=POINT` and `freeze=POINT` end it (SIGKILL) or stop it (SIGSTOP) there,
    /// `skip=N` only after so many times, `without=SAFEGUARD` takes one away, `hide` keeps its process id from others.
    ///
    /// # Errors
    /// `Usage` for a word that is none of these.
    pub fn arm(text: &str) -> Result<()> {
        let mut orders = Orders::default();
        for word in text.split_ascii_whitespace() {
            let (verb, what) = word.split_once('=').unwrap_or((word, ""));
            let unknown = || Error::usage(format!("{word:?} is no order of a drill"));
            match verb {
                "kill" | "freeze" => {
                    let point = Point::ALL.iter().find(|point| point.name() == what).ok_or_else(unknown)?;
                    orders.at = Some((*point, verb == "freeze"));
                }
                "skip" => orders.skip = AtomicU32::new(what.parse().map_err(|_| unknown())?),
                "without" => orders.without = Some(*Safeguard::ALL.iter().find(|one| one.name() == what).ok_or_else(unknown)?),
                "hide" => orders.hide_process = true,
                _ => return Err(unknown()),
            }
        }
        ORDERS.set(orders).map_err(|_| Error::usage("the orders of a drill were given already"))
    }

    pub(crate) fn pass(point: Point) {
        let Some(Orders { at: Some((at, freeze)), skip, .. }) = ORDERS.get() else { return };
        if *at != point || skip.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return;
        }
        if *freeze {
            // Once: after it is woken it goes on as if nothing had been.
            if skip.swap(u32::MAX, Ordering::SeqCst) == 0 {
                let _quiet = QUIET.write().unwrap_or_else(PoisonError::into_inner);
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
                // The signal may find the threads a moment later: nothing may begin until then.
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            return;
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal may find this thread a moment later: nothing may happen until then.
        loop {
            std::thread::park();
        }
    }

    pub(crate) fn disabled(safeguard: Safeguard) -> bool {
        super::thread::is_away(safeguard) || ORDERS.get().is_some_and(|orders| orders.without == Some(safeguard))
    }

    pub(crate) fn hides_process() -> bool {
        ORDERS.get().is_some_and(|orders| orders.hide_process)
    }
}

#[cfg(all(feature = "drills", debug_assertions))]
pub use armed::arm;
#[cfg(all(feature = "drills", debug_assertions))]
pub(crate) use armed::{Busy, busy, disabled, hides_process, pass};

#[cfg(not(all(feature = "drills", debug_assertions)))]
mod unarmed {
    use super::{Point, Safeguard};
    use crate::error::{Error, Result};

    /// Refuses: this build has no drills.
    ///
    /// # Errors
    /// `Usage`, always.
    pub fn arm(_text: &str) -> Result<()> {
        Err(Error::usage("this build has no drills"))
    }

    #[derive(Debug)]
    pub(crate) struct Busy;

    #[inline]
    pub(crate) fn busy() -> Busy {
        Busy
    }

    #[inline]
    pub(crate) fn pass(_point: Point) {}

    #[inline]
    pub(crate) fn disabled(_safeguard: Safeguard) -> bool {
        false
    }

    #[inline]
    pub(crate) fn hides_process() -> bool {
        false
    }
}

#[cfg(not(all(feature = "drills", debug_assertions)))]
pub use unarmed::arm;
#[cfg(not(all(feature = "drills", debug_assertions)))]
pub(crate) use unarmed::{Busy, busy, disabled, hides_process, pass};
