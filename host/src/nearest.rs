//! The name that somebody meant: what an error proposes in place of one that is unknown.

/// Returns the candidate that is most like `given`, if any is like it at all.
pub(crate) fn nearest<'c>(given: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(given, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
