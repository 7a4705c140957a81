//! What a run's record says of its guest, and where its long texts go.

use std::time::Duration;

use bytes::Bytes;

use super::watching::Watching;
use crate::cancel::CancelReason;
use crate::checkpoint::writer::PackWriter;
use crate::component::failure::GuestFailure;
use crate::component::invoke::Invoked;
use crate::error::{Error, Result};
use crate::secret::Mask;
use crate::session::record::{Failure, LOG_INLINE, OUTPUT_INLINE, RunRecord, Status, StoredText, Text};
use crate::workspace::page::{ChunkLink, Place};
use crate::workspace::source::Sink;

/// Fills in how the guest ended.
pub(super) fn describe(record: &mut RunRecord, invoked: &Invoked, mask: &Mask) {
    record.usage.wall_ms = millis(invoked.usage.wall);
    record.usage.cpu_ms = millis(invoked.usage.cpu);
    record.usage.memory_peak = invoked.usage.memory_peak;
    match &invoked.result {
        Ok(_) => record.status = Status::Completed,
        Err(failure) => {
            record.status = match failure {
                GuestFailure::OutOfTime { .. } => Status::TimedOut,
                GuestFailure::Cancelled(CancelReason::Requested) => Status::Cancelled,
                _ => Status::Failed,
            };
            record.failure = Some(Failure::new(failure.code(), &mask.apply(&failure.to_string())).hint(failure.hint().as_deref()));
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The texts of a run, in the record or given to the turn's pack.
pub(super) struct Texts {
    output: Option<Kept>,
    log: Option<Kept>,
    events: Option<Kept>,
}

enum Kept {
    Inline(String),
    Chunk(ChunkLink),
}

/// Gives the long ones to the pack.
pub(super) async fn texts(invoked: &Invoked, events: &Watching, writer: &mut PackWriter) -> Result<Texts> {
    let (log, reports) = events.kept();
    let output = match &invoked.result {
        Ok(response) => Some(response.output.clone()),
        Err(_) => None,
    };
    Ok(Texts {
        output: match output {
            Some(output) => Some(keep(output, OUTPUT_INLINE, writer).await?),
            None => None,
        },
        log: if log.is_empty() { None } else { Some(keep(log.into(), LOG_INLINE, writer).await?) },
        events: if reports.is_empty() { None } else { Some(keep(reports.into(), LOG_INLINE, writer).await?) },
    })
}

async fn keep(bytes: Bytes, inline: usize, writer: &mut PackWriter) -> Result<Kept> {
    match std::str::from_utf8(&bytes) {
        Ok(text) if Text::fits(text, inline) => Ok(Kept::Inline(text.to_owned())),
        // What isn't text is kept byte by byte.
        _ => Ok(Kept::Chunk(writer.chunk(bytes).await?)),
    }
}

/// Writes into the record where they are, once the pack is sealed.
pub(super) fn place(record: &mut RunRecord, texts: Texts, writer: &PackWriter) -> Result<()> {
    let place = |kept: Option<Kept>| {
        kept.map(|kept| match kept {
            Kept::Inline(text) => Ok(Text::Inline(text)),
            Kept::Chunk(link) => match writer.resolve_chunk(&link)? {
                ChunkLink { id, place: Place::At(at) } => Ok(Text::Stored(StoredText { id, at })),
                ChunkLink { id, place: Place::Fresh } => Err(Error::internal(format!("chunk {id} has no place after the pack was sealed"))),
            },
        })
        .transpose()
    };
    record.output = place(texts.output)?;
    record.log = place(texts.log)?;
    record.events = place(texts.events)?;
    Ok(())
}
