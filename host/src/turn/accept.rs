//! Accepting a run: which run a request is, and the queue entry that makes it known to every replica.

use bytes::Bytes;

use super::Turn;
use super::request::{Attachment, Busy, PinChoice, TurnRequest};
use crate::config::OnCrash;
use crate::drill::{self, Point};
use crate::error::{Error, Result};
use crate::id::{RunId, sha256};
use crate::session::head::Refusal;
use crate::session::queue::{self, ATTEMPTS_DEFAULT, AttachmentRef, Choice, QueueEntry};
use crate::session::record::{Input, RunRecord};
use crate::session::{Sessions, Snapshot};
use crate::store::{Key, Nonce};

/// An accepted run with what it got.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) entry: QueueEntry,
    pub(crate) input: String,
    pub(crate) attachments: Vec<Attachment>,
    /// Whether this process has just accepted it.
    pub(crate) fresh: bool,
}

impl Work {
    /// Reads what a queue entry names.
    pub(crate) async fn load(sessions: &Sessions, entry: QueueEntry) -> Result<Self> {
        let input = sessions.input(&entry.session, &entry.input).await?;
        let mut attachments = Vec::with_capacity(entry.attachments.len());
        for file in &entry.attachments {
            let object = sessions.store().get(&Key::Input(entry.session.clone(), file.digest), file.size).await?;
            attachments.push(Attachment { name: file.name.clone(), media_type: file.media_type.clone(), bytes: object.bytes });
        }
        Ok(Self { entry, input, attachments, fresh: false })
    }
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// It is accepted; the head is that of the session, as it was just read.
    Accepted(Box<Work>, Box<Snapshot>),
    /// It is that of a run which has ended.
    Ended(Box<RunRecord>),
}

pub(super) enum Identified {
    /// A new run; with the incarnation that its id stands for, where it was made from a key.
    New(RunId, Option<Nonce>),
    Ended(Box<RunRecord>),
}

impl Turn<'_> {
    /// Accepts a run that any replica may drive.
    pub(super) async fn submit(&self, request: TurnRequest) -> Result<Submitted> {
        // An entry names the session's incarnation, so that one that is left over can't bring a deleted session back.
        let known = self.sessions.ensure(&self.session).await?;
        let incarnation = known.head.incarnation;
        let run = match self.identify_in(incarnation, &request).await? {
            Identified::New(run, _) => run,
            Identified::Ended(record) => return Ok(Submitted::Ended(record)),
        };
        if request.busy == Busy::Refuse {
            self.refuse_if_busy(&known, run).await?;
        }
        self.context.presence.announce().await?;
        let work = self.accept(run, Some(incarnation), request).await?;
        Ok(Submitted::Accepted(Box::new(work), Box::new(known)))
    }

    /// Gives the run its id. The same key on the same session is the same run: an ended one gives its record again.
    pub(super) async fn identify(&self, request: &TurnRequest) -> Result<Identified> {
        if request.key.is_none() && request.run.is_none() {
            return Ok(Identified::New(self.context.new_run_id(), None));
        }
        // The session has to be there first: its incarnation is part of what the key stands for.
        let known = self.sessions.ensure(&self.session).await?;
        self.identify_in(known.head.incarnation, request).await
    }

    async fn identify_in(&self, incarnation: Nonce, request: &TurnRequest) -> Result<Identified> {
        let (run, what) = match (request.run, &request.key) {
            (Some(run), _) => (run, format!("the run id {run}")),
            (None, Some(key)) => {
                let identity = serde_json::to_vec(&(&self.session, incarnation, key))
                    .map_err(|error| Error::internal("a key can't be encoded").source(error))?;
                (RunId::derived(sha256(&identity)), format!("the key {key:?}"))
            }
            (None, None) => return Ok(Identified::New(self.context.new_run_id(), None)),
        };
        let Some(record) = self.sessions.ended(&self.session, run).await? else {
            return Ok(Identified::New(run, Some(incarnation)));
        };
        let same = match record.request {
            Some(of) => of == self.entry(run, None, request).request()?,
            None => record.input.as_ref().is_none_or(|input| input.digest == sha256(request.input.as_bytes())),
        };
        if !same {
            return Err(Error::conflict(format!("{what} was used on session {} with another input", self.session))
                .code("key_reused")
                .hint("use another key for another input"));
        }
        Ok(Identified::Ended(Box::new(record)))
    }

    /// Refuses where another run goes on or waits.
    async fn refuse_if_busy(&self, known: &Snapshot, run: RunId) -> Result<()> {
        if let Some(lease) = known.head.lease.as_ref().filter(|lease| lease.run != run)
            && !self.sessions.is_lost(&self.session, lease).await?
        {
            return Err(Refusal::Busy(lease.clone()).into_error(&self.session));
        }
        if let Some(first) = self.sessions.places(&self.session).await?.first().filter(|first| first.run != run) {
            return Err(Error::conflict(format!("session {} is busy: run {} is waiting", self.session, first.run))
                .code("session_busy")
                .hint("wait for that run, or cancel it"));
        }
        Ok(())
    }

    /// Makes the queue entry; long inputs and attachments are stored first.
    pub(super) async fn accept(&self, run: RunId, incarnation: Option<Nonce>, request: TurnRequest) -> Result<Work> {
        let entry = self.entry(run, incarnation, &request);
        if entry.input.inline.is_none() {
            self.sessions.put_input(&self.session, Bytes::from(request.input.clone())).await?;
        }
        for file in &request.attachments {
            self.sessions.put_input(&self.session, file.bytes.clone()).await?;
        }
        drill::pass(Point::AcceptBefore);
        let fresh = self.sessions.enqueue(&entry).await?;
        drill::pass(Point::AcceptAfter);
        Ok(Work { entry, input: request.input, attachments: request.attachments, fresh })
    }

    fn entry(&self, run: RunId, incarnation: Option<Nonce>, request: &TurnRequest) -> QueueEntry {
        let attachment = |file: &Attachment| AttachmentRef {
            name: file.name.clone(),
            media_type: file.media_type.clone(),
            digest: sha256(&file.bytes),
            size: file.bytes.len() as u64,
        };
        QueueEntry {
            run,
            session: self.session.clone(),
            incarnation,
            input: Input::of(&request.input),
            attachments: request.attachments.iter().map(attachment).collect(),
            trigger: request.trigger.clone(),
            choice: request.choice.as_ref().map(|choice| match choice {
                PinChoice::Commit(commit) => Choice::Commit(*commit),
                PinChoice::Branch(branch) => Choice::Branch(branch.clone()),
            }),
            args: request.args.clone(),
            params: request.params.clone(),
            on_crash: match self.agent.on_crash {
                OnCrash::Retry => queue::OnCrash::Retry(ATTEMPTS_DEFAULT),
                OnCrash::Fail => queue::OnCrash::Fail,
            },
            attempts: 0,
            origin: request.origin,
            owner: self.sessions.owner().clone(),
            created: self.store.clock().now(),
        }
    }
}
