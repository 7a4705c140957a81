//! temp
use super::super::page::{LinkedFile, Page, PageLink};
use super::super::source::{Sink, Source};
use crate::error::Result;
/// Returns the largest number in use.
pub async fn largest(source: &dyn Source, table: &PageLink) -> Result<Option<u64>> {
    Ok(match &*source.page(table).await? {
        Page::LinkTable(files) => files.last().map(|file| file.number),
        _ => None,
    })
}
/// Returns the table that `base` becomes by the changes.
pub async fn update(
    source: &dyn Source,
    sink: &mut dyn Sink,
    base: Option<&PageLink>,
    changes: std::collections::BTreeMap<u64, Option<LinkedFile>>,
) -> Result<Option<PageLink>> {
    if changes.is_empty() {
        return Ok(base.cloned());
    }
    let mut files = std::collections::BTreeMap::new();
    if let Some(base) = base
        && let Page::LinkTable(old) = &*source.page(base).await?
    {
        files.extend(old.iter().map(|file| (file.number, file.clone())));
    }
    for (number, file) in changes {
        match file {
            Some(file) => drop(files.insert(number, file)),
            None => drop(files.remove(&number)),
        }
    }
    if files.is_empty() {
        return Ok(None);
    }
    Ok(Some(sink.page(Page::LinkTable(files.into_values().collect())).await?))
}
