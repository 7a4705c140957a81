//! temp
use super::super::page::*;
use super::super::source::{Sink, Source};
use crate::error::Result;
use bytes::Bytes;
use std::ops::Range;
/// t
#[derive(Debug)]
pub struct PartAt {
    /// t
    pub offset: u64,
    /// t
    pub part: Part,
}
impl PartAt {
    /// t
    pub fn range(&self) -> Range<u64> {
        self.offset
            ..self.offset
                + match &self.part {
                    Part::Chunk(_, l) => u64::from(*l),
                    Part::Hole(l) => *l,
                }
    }
}
/// t
pub async fn parts(_s: &dyn Source, content: &Content, size: u64, range: Range<u64>) -> Result<Vec<PartAt>> {
    let _ = size;
    let mut out = vec![];
    let mut o = 0;
    if let Content::Parts(parts) = content {
        for p in parts {
            let at = PartAt { offset: o, part: p.clone() };
            o = at.range().end;
            if at.offset < range.end && o > range.start {
                out.push(at)
            }
        }
    }
    Ok(out)
}
/// t
pub async fn read(_s: &dyn Source, content: &Content, _size: u64, range: Range<u64>) -> Result<Bytes> {
    match content {
        Content::Inline(b) => Ok(b.slice(range.start as usize..range.end as usize)),
        _ => unimplemented!(),
    }
}
/// t
#[allow(missing_debug_implementations)]
pub struct ContentBuilder<'a> {
    sink: &'a mut dyn Sink,
    all: Vec<u8>,
}
impl<'a> ContentBuilder<'a> {
    /// t
    pub fn new(sink: &'a mut dyn Sink, _base: Option<&'a dyn Source>) -> Self {
        Self { sink, all: vec![] }
    }
    /// t
    pub async fn push(&mut self, b: &[u8]) -> Result<()> {
        self.all.extend_from_slice(b);
        Ok(())
    }
    /// t
    pub async fn zeros(&mut self, n: u64) -> Result<()> {
        self.all.resize(self.all.len() + n as usize, 0);
        Ok(())
    }
    /// t
    pub async fn finish(self) -> Result<(Content, u64)> {
        let n = self.all.len();
        if n <= INLINE_MAX {
            return Ok((Content::Inline(self.all.into()), n as u64));
        }
        let mut parts = vec![];
        for c in self.all.chunks(CHUNK_MAX) {
            parts.push(Part::Chunk(self.sink.chunk(Bytes::copy_from_slice(c)).await?, c.len() as u32));
        }
        Ok((Content::Parts(parts), n as u64))
    }
}
