//! The rules of the format that a page's bytes alone don't prove.

use super::{DIRECTORY_ENTRIES_MAX, ENTRY_MIN, NAME_MAX, SIZE_MAX, TARGET_MAX, is_one_page};
use crate::workspace::cbor::Malformed;
use crate::workspace::page::{
    CHUNK_MAX, Content, DIRECTORY_MAX, Entry, FANOUT, INLINE_MAX, LinkedFile, Node, PAGE_MAX, PARTS_MAX, Page, Part, SplitSlot,
};

pub(super) fn check(page: &Page, body_len: usize) -> Result<(), Malformed> {
    if body_len > PAGE_MAX {
        return Err(Malformed("is longer than a page can be"));
    }
    match page {
        Page::Directory(entries) => {
            if entries.len() > 1 && body_len > DIRECTORY_MAX {
                return Err(Malformed("has more entries than fit one directory page"));
            }
            entries.iter().try_for_each(checked_entry)?;
            ascending(entries.windows(2).all(|pair| pair[0].name < pair[1].name))
        }
        Page::Split(slots) => checked_slots(slots),
        Page::List(parts) => checked_parts(parts).map(|_| ()),
        Page::ListSplit(children) => {
            let total = children.iter().try_fold(0_u64, |sum, (_, bytes)| sum.checked_add(*bytes).filter(|_| *bytes > 0));
            if children.is_empty() || total.is_none_or(|total| total > SIZE_MAX) {
                return Err(Malformed("has a split list of impossible lengths"));
            }
            Ok(())
        }
        Page::LinkTable(files) => {
            files.iter().try_for_each(checked_linked_file)?;
            ascending(!files.is_empty() && files.windows(2).all(|pair| pair[0].number < pair[1].number))
        }
        Page::LinkTableSplit(children) => {
            ascending(!children.is_empty() && children.windows(2).all(|pair| pair[0].1 < pair[1].1))?;
            if children.last().is_some_and(|(_, largest)| *largest > SIZE_MAX) {
                Err(Malformed("has a number that is too large"))
            } else {
                Ok(())
            }
        }
    }
}

fn ascending(holds: bool) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed("has items that are missing, doubled or out of order")) }
}

fn checked_slots(slots: &[Option<SplitSlot>]) -> Result<(), Malformed> {
    if slots.len() != FANOUT {
        return Err(Malformed("has a split of the wrong number of slots"));
    }
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    for slot in slots.iter().flatten() {
        entries = entries.saturating_add(slot.entries);
        bytes = bytes.saturating_add(slot.bytes);
        let least = slot.entries.saturating_mul(ENTRY_MIN);
        // The longest entry is a link's name and target, or a name and a full set of parts.
        let most = slot.entries.saturating_mul((NAME_MAX + TARGET_MAX + 32) as u64);
        if slot.entries == 0 || !(least..=most).contains(&slot.bytes) {
            return Err(Malformed("has a split of impossible totals"));
        }
    }
    if entries > DIRECTORY_ENTRIES_MAX || is_one_page(entries, bytes) {
        return Err(Malformed("has a split of impossible totals"));
    }
    Ok(())
}

pub(super) fn checked_entry(entry: &Entry) -> Result<(), Malformed> {
    if entry.name.is_empty()
        || entry.name.len() > NAME_MAX
        || matches!(&entry.name[..], b"." | b"..")
        || entry.name.iter().any(|byte| matches!(byte, 0 | b'/'))
    {
        return Err(Malformed("has an entry with a name that isn't allowed"));
    }
    if entry.mode > 0o777 {
        return Err(Malformed("has a mode beyond the nine permission bits"));
    }
    match &entry.node {
        Node::File { size, content } => checked_content(*size, content),
        Node::Directory(_) => Ok(()),
        Node::Symlink(target) => {
            if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
                return Err(Malformed("has a symbolic link with a target that isn't allowed"));
            }
            Ok(())
        }
        Node::Linked(number) => {
            if entry.mode != 0 || entry.mtime != 0 || *number > SIZE_MAX {
                return Err(Malformed("has a hard link with a mode, a time or a number that isn't allowed"));
            }
            Ok(())
        }
    }
}

fn checked_linked_file(file: &LinkedFile) -> Result<(), Malformed> {
    if file.names == 0 || file.number > SIZE_MAX || file.mode > 0o777 {
        return Err(Malformed("has a linked file of impossible numbers"));
    }
    checked_content(file.size, &file.content)
}

fn checked_content(size: u64, content: &Content) -> Result<(), Malformed> {
    let small = size <= INLINE_MAX as u64;
    let fits = match content {
        Content::Inline(bytes) => bytes.len() as u64 == size && small,
        Content::Parts(parts) => checked_parts(parts)? == size && !small && parts.len() <= PARTS_MAX,
        Content::List(_) => !small && size <= SIZE_MAX,
    };
    if fits { Ok(()) } else { Err(Malformed("has a content that doesn't fit its size")) }
}

/// Checks parts and returns the number of bytes that they cover.
pub(super) fn checked_parts(parts: &[Part]) -> Result<u64, Malformed> {
    let (mut total, mut after_hole) = (0_u64, false);
    for part in parts {
        let len = match part {
            Part::Chunk(_, len) if *len > 0 && *len as usize <= CHUNK_MAX => u64::from(*len),
            // Two holes in a row would be two forms of one value.
            Part::Hole(len) if *len > 0 && !after_hole => *len,
            _ => return Err(Malformed("has a part of an impossible length")),
        };
        after_hole = matches!(part, Part::Hole(_));
        total = total.checked_add(len).filter(|total| *total <= SIZE_MAX).ok_or(Malformed("has a part of an impossible length"))?;
    }
    if total == 0 { Err(Malformed("has no parts")) } else { Ok(total) }
}
