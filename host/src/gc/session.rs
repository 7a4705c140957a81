//! The collection of one session. The order is what keeps it safe; see the text of [`super`].

use std::collections::HashSet;
use std::sync::Arc;

use super::mark::Marker;
use super::{Collected, Options, Why, pins};
use crate::clock::UnixNanos;
use crate::error::Result;
use crate::id::{PackId, SessionRef};
use crate::session::Sessions;
use crate::session::head::{Head, Refusal, Trashed};
use crate::session::record::RunRecord;
use crate::store::{Key, Prefix};
use crate::workspace::page::Home;

/// How often a collection begins again because the head has changed under it.
const ROUNDS: u32 = 5;

pub(super) struct Collector<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) options: &'a Options,
    /// The store's time when the collection began.
    pub(super) now: UnixNanos,
    pub(super) session: &'a SessionRef,
}

/// What is to be done, by a head as it was read.
struct Plan {
    head: Head,
    report: Collected,
    ready: Vec<(PackId, u64)>,
}

impl Collector<'_> {
    pub(super) async fn collect(&self) -> Result<Collected> {
        let mut swept = 0;
        if !self.options.dry_run {
            swept = self.sessions.sweep(self.session).await? as u64;
        }
        for _ in 0..ROUNDS {
            let Some(snapshot) = self.sessions.load(self.session).await? else { return Ok(Collected { swept, ..Collected::default() }) };
            let Plan { head, mut report, ready } = self.plan(&snapshot.head).await?;
            report.swept = swept;
            if self.options.dry_run {
                return Ok(report);
            }
            if head != snapshot.head && self.sessions.replace_exactly(self.session, &snapshot, &head).await?.is_none() {
                // Somebody has changed it: what was marked may not be all that is kept now.
                continue;
            }
            self.delete(&mut report, &ready).await?;
            if report.deleted {
                report.deleted_objects = self.delete_others(&head).await?;
            }
            return Ok(report);
        }
        Err(crate::session::sessions::contended(self.session))
    }

    async fn plan(&self, head: &Head) -> Result<Plan> {
        let home = Arc::new(Home::Session(self.session.clone()));
        let store = self.sessions.store();
        let mut report = Collected { deleted: !head.is_open(), busy: head.lease.is_some(), ..Collected::default() };
        let loose = pins::loose(self.sessions, head, self.now).await?;
        report.unpinned = loose.len() as u64;
        let mut next = head.clone();
        for incarnation in &loose {
            next = next.unpin(*incarnation).unwrap_or(next);
        }
        let records = if head.is_open() { self.sessions.records_from(head, head.kept_from).await? } else { Vec::new() };
        let kept_from = self.kept_from(head, &records).await?;
        report.dropped = records.iter().filter(|record| record.seq < kept_from && record.is_completed()).count() as u64;
        if head.is_open() {
            next = next.retain_from(kept_from);
        }

        let mut marker = Marker::new(store);
        let named = next.saves.iter().map(|save| &save.checkpoint).chain(next.pins.iter().map(|pin| &pin.checkpoint));
        for checkpoint in next.checkpoint.iter().chain(named) {
            report.kept += 1;
            marker.checkpoint(&checkpoint.root).await?;
        }
        for record in records.iter().filter(|record| record.seq >= kept_from) {
            marker.texts(record);
            if let Some(after) = &record.after {
                report.kept += u64::from(record.is_completed());
                marker.checkpoint(&after.root).await?;
            }
        }
        let listed = store.list(&Prefix::SessionPacks(self.session.clone())).await?.objects;
        let mut there = HashSet::new();
        let grace = i64::try_from(self.options.grace.as_nanos()).unwrap_or(i64::MAX);
        let (mut doomed, mut ready) = (Vec::new(), Vec::new());
        for object in listed {
            let Key::SessionPack(_, pack) = object.key else { continue };
            there.insert(pack);
            let trashed = next.trash.iter().find(|trashed| trashed.pack == pack).map(|trashed| trashed.since);
            match (marker.is_used(&home, pack), trashed) {
                (true, _) => {
                    report.live_packs += 1;
                    report.live_bytes += object.size;
                }
                (false, Some(since)) if self.now.saturating_sub(since) >= grace && self.now.saturating_sub(object.modified) >= grace => {
                    ready.push((pack, object.size));
                }
                (false, Some(_)) => report.waiting += 1,
                // While a run goes on, what it has uploaded can't be told from garbage.
                (false, None) if head.lease.is_some() => {}
                (false, None) => doomed.push(Why { pack, bytes: object.size, written: object.modified }),
            }
        }
        // What is needed after all, and what is there no more, needs no place on the list.
        let off: Vec<PackId> =
            next.trash.iter().map(|trashed| trashed.pack).filter(|pack| marker.is_used(&home, *pack) || !there.contains(pack)).collect();
        next = next.undiscard(&off);
        let trash: Vec<Trashed> = doomed.iter().map(|why| Trashed { pack: why.pack, since: self.now }).collect();
        let (with_trash, taken) = next.discard(&trash);
        doomed.truncate(taken);
        report.discarded = doomed;
        if self.options.dry_run {
            report.deleted_packs = ready.len() as u64;
            report.deleted_bytes = ready.iter().map(|(_, bytes)| bytes).sum();
        }
        Ok(Plan { head: with_trash, report, ready })
    }

    /// Deletes packs whose grace is over, and takes them off the list.
    async fn delete(&self, report: &mut Collected, ready: &[(PackId, u64)]) -> Result<()> {
        for (pack, bytes) in ready {
            self.sessions.store().delete(&Key::SessionPack(self.session.clone(), *pack)).await?;
            report.deleted_packs += 1;
            report.deleted_bytes += bytes;
        }
        if ready.is_empty() {
            return Ok(());
        }
        let gone: Vec<PackId> = ready.iter().map(|(pack, _)| *pack).collect();
        self.sessions.alter_any(self.session, |head| Ok::<_, Refusal>(head.undiscard(&gone))).await.map(drop)
    }

    /// Deletes a deleted session's records and inputs, when its grace is over. Those of a session that has its name now aren't touched.
    async fn delete_others(&self, head: &Head) -> Result<u64> {
        let grace = i64::try_from(self.options.grace.as_nanos()).unwrap_or(i64::MAX);
        let mut deleted = 0;
        for object in self.sessions.store().list(&Prefix::Session(self.session.clone())).await?.objects {
            let old = self.now.saturating_sub(object.modified) >= grace;
            let of_a_run = matches!(object.key, Key::Run(..) | Key::Input(..));
            if old && of_a_run && self.sessions.load(self.session).await?.is_some_and(|found| found.head == *head) {
                self.sessions.store().delete(&object.key).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Returns the smallest seq whose checkpoint is kept.
    async fn kept_from(&self, head: &Head, records: &[RunRecord]) -> Result<u64> {
        let retention = &self.options.retention;
        let span = i64::try_from(retention.keep_days).unwrap_or(i64::MAX).saturating_mul(24 * 60 * 60 * 1_000_000_000);
        let (mut completed, mut from) = (0, head.seq);
        for record in records {
            if completed >= retention.keep_last {
                // By the store's date: a replica's clock may be hours or years off.
                let written = self.sessions.store().stat(&Key::Run(self.session.clone(), record.run)).await?;
                if written.is_none_or(|written| self.now.saturating_sub(written.modified) >= span) {
                    break;
                }
            }
            completed += u64::from(record.is_completed());
            from = record.seq;
        }
        Ok(from.max(head.kept_from))
    }
}
