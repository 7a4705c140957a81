//! What a page names, in the order of its body.

use std::fmt;

use crate::workspace::page::{ChunkLink, Content, Node, Page, PageLink, Part};

/// A page or a chunk that a page names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference<'p> {
    /// A page.
    Page(&'p PageLink),
    /// A chunk and its length in bytes.
    Chunk(&'p ChunkLink, u32),
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(link) => write!(f, "page {}", link.id),
            Self::Chunk(link, _) => write!(f, "chunk {}", link.id),
        }
    }
}

/// Calls `each` with everything that a page names, in the order of its body.
pub fn references<'p>(page: &'p Page, each: &mut dyn FnMut(Reference<'p>)) {
    fn parts<'p>(parts: &'p [Part], each: &mut dyn FnMut(Reference<'p>)) {
        for part in parts {
            if let Part::Chunk(chunk, len) = part {
                each(Reference::Chunk(chunk, *len));
            }
        }
    }
    fn content<'p>(content: &'p Content, each: &mut dyn FnMut(Reference<'p>)) {
        match content {
            Content::Inline(_) => {}
            Content::Parts(all) => parts(all, each),
            Content::List(page) => each(Reference::Page(page)),
        }
    }
    match page {
        Page::Directory(entries) => {
            for entry in entries {
                match &entry.node {
                    Node::File { content: file, .. } => content(file, each),
                    Node::Directory(page) => each(Reference::Page(page)),
                    Node::Symlink(_) | Node::Linked(_) => {}
                }
            }
        }
        Page::Split(slots) => slots.iter().flatten().for_each(|slot| each(Reference::Page(&slot.page))),
        Page::List(all) => parts(all, each),
        Page::ListSplit(children) | Page::LinkTableSplit(children) => children.iter().for_each(|(page, _)| each(Reference::Page(page))),
        Page::LinkTable(files) => files.iter().for_each(|file| content(&file.content, each)),
    }
}
