//! What a stored head has to be, whoever wrote it.

use super::{CANCELS_MAX, COUNT_MAX, Head, PINS_MAX, READER, RECENT_MAX, SAVE_NAME_MAX, SAVES_MAX, TRASH_MAX};
use crate::error::{Error, Result};
use crate::store::document::Document;

impl Document for Head {
    const KIND: &'static str = "head";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "head_damaged";

    fn check(&self) -> Result<()> {
        if self.min_reader > READER {
            return Err(Error::too_new(format!(
                "session {} needs a reader of version {}; this program is one of version {READER}",
                self.session, self.min_reader
            ))
            .hint("upgrade landfall on this machine"));
        }
        let lists = [
            ("ended runs", self.recent.len(), RECENT_MAX),
            ("saves", self.saves.len(), SAVES_MAX),
            ("pins", self.pins.len(), PINS_MAX),
            ("discarded packs", self.trash.len(), TRASH_MAX),
            ("cancels", self.cancels.len(), CANCELS_MAX),
        ];
        for (what, len, max) in lists {
            if len > max {
                return Err(Error::damaged(format!("it has {len} {what}, over the limit of {max}")));
            }
        }
        if self.epoch > COUNT_MAX || self.seq > COUNT_MAX {
            return Err(Error::damaged("its epoch or seq is beyond what is ever counted"));
        }
        if self.lease.as_ref().is_some_and(|lease| lease.epoch > self.epoch || lease.attempt == 0) {
            return Err(Error::damaged("its lease is of a later epoch than itself"));
        }
        let ordered = self.recent.windows(2).all(|pair| pair[0].seq > pair[1].seq);
        if !ordered || self.recent.first().is_some_and(|recent| recent.seq != self.seq) || self.turn > self.seq {
            return Err(Error::damaged("its ended runs don't fit its seq"));
        }
        if self.saves.iter().any(|save| save.name.is_empty() || save.name.len() > SAVE_NAME_MAX) {
            return Err(Error::damaged("a named checkpoint has no name or a name that is too long"));
        }
        Ok(())
    }
}
