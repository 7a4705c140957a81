//! A page's body as it is written.

use super::{form, kind, node};
use crate::workspace::cbor::{self, Out};
use crate::workspace::page::{Content, Entry, LinkedFile, Node, Page, PageLink, Part};

pub(super) fn put_page(out: &mut impl Out, page: &Page) {
    cbor::put_array(out, 2);
    match page {
        Page::Directory(entries) => {
            cbor::put_uint(out, kind::DIRECTORY);
            cbor::put_array(out, entries.len());
            for entry in entries {
                put_entry(out, entry);
            }
        }
        Page::Split(slots) => {
            cbor::put_uint(out, kind::SPLIT);
            cbor::put_array(out, slots.len());
            for slot in slots {
                match slot {
                    None => cbor::put_null(out),
                    Some(slot) => {
                        cbor::put_array(out, 3);
                        cbor::put_bytes(out, slot.page.id.as_bytes());
                        cbor::put_uint(out, slot.bytes);
                        cbor::put_uint(out, slot.entries);
                    }
                }
            }
        }
        Page::List(parts) => {
            cbor::put_uint(out, kind::LIST);
            put_parts(out, parts);
        }
        Page::ListSplit(children) => {
            cbor::put_uint(out, kind::LIST_SPLIT);
            put_children(out, children);
        }
        Page::LinkTable(files) => {
            cbor::put_uint(out, kind::LINK_TABLE);
            cbor::put_array(out, files.len());
            for file in files {
                put_linked_file(out, file);
            }
        }
        Page::LinkTableSplit(children) => {
            cbor::put_uint(out, kind::LINK_TABLE_SPLIT);
            put_children(out, children);
        }
    }
}

pub(super) fn put_entry(out: &mut impl Out, entry: &Entry) {
    let (items, kind) = match &entry.node {
        Node::File { .. } => (6, node::FILE),
        Node::Directory(_) => (5, node::DIRECTORY),
        Node::Symlink(_) => (5, node::SYMLINK),
        Node::Linked(_) => (3, node::LINKED),
    };
    cbor::put_array(out, items);
    cbor::put_bytes(out, &entry.name);
    cbor::put_uint(out, kind);
    if !matches!(entry.node, Node::Linked(_)) {
        cbor::put_uint(out, u64::from(entry.mode));
        cbor::put_int(out, entry.mtime);
    }
    match &entry.node {
        Node::File { size, content } => {
            cbor::put_uint(out, *size);
            put_content(out, content);
        }
        Node::Directory(page) => cbor::put_bytes(out, page.id.as_bytes()),
        Node::Symlink(target) => cbor::put_bytes(out, target),
        Node::Linked(number) => cbor::put_uint(out, *number),
    }
}

pub(super) fn put_content(out: &mut impl Out, content: &Content) {
    match content {
        Content::Inline(bytes) => cbor::put_bytes(out, bytes),
        Content::Parts(parts) => match parts.as_slice() {
            // By far the commonest: the length is the file's size.
            [Part::Chunk(chunk, _)] => {
                cbor::put_array(out, 2);
                cbor::put_uint(out, form::CHUNK);
                cbor::put_bytes(out, chunk.id.as_bytes());
            }
            _ => {
                cbor::put_array(out, 2);
                cbor::put_uint(out, form::PARTS);
                put_parts(out, parts);
            }
        },
        Content::List(page) => {
            cbor::put_array(out, 2);
            cbor::put_uint(out, form::LIST);
            cbor::put_bytes(out, page.id.as_bytes());
        }
    }
}

pub(super) fn put_parts(out: &mut impl Out, parts: &[Part]) {
    cbor::put_array(out, parts.len());
    for part in parts {
        match part {
            Part::Chunk(chunk, len) => {
                cbor::put_array(out, 2);
                cbor::put_bytes(out, chunk.id.as_bytes());
                cbor::put_uint(out, u64::from(*len));
            }
            Part::Hole(len) => cbor::put_uint(out, *len),
        }
    }
}

pub(super) fn put_children(out: &mut impl Out, children: &[(PageLink, u64)]) {
    cbor::put_array(out, children.len());
    for (page, key) in children {
        cbor::put_array(out, 2);
        cbor::put_bytes(out, page.id.as_bytes());
        cbor::put_uint(out, *key);
    }
}

pub(super) fn put_linked_file(out: &mut impl Out, file: &LinkedFile) {
    cbor::put_array(out, 6);
    cbor::put_uint(out, file.number);
    cbor::put_uint(out, u64::from(file.names));
    cbor::put_uint(out, u64::from(file.mode));
    cbor::put_int(out, file.mtime);
    cbor::put_uint(out, file.size);
    put_content(out, &file.content);
}
