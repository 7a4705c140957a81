//! The forms in which a text can hold a secret without anybody having meant to hide it.

use std::collections::BTreeSet;

use zeroize::Zeroizing;

use crate::base64::{self, Alphabet};

/// Shortest form that is looked for, in bytes: a shorter one would be found in ordinary texts.
const FORM_MIN: usize = 12;

/// Returns all forms of these secrets, each once.
pub(super) fn of<'s>(secrets: impl Iterator<Item = &'s str>) -> Vec<Zeroizing<String>> {
    let mut forms = BTreeSet::new();
    for secret in secrets {
        let bytes = secret.as_bytes();
        forms.insert(secret.to_owned());
        forms.insert(hex::encode(bytes));
        forms.insert(url::form_urlencoded::byte_serialize(bytes).collect());
        forms.insert(percent(bytes, |byte| !(byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))));
        forms.insert(percent(bytes, |_| true));
        // As JSON and as HTML write it.
        forms.insert(secret.replace('\\', "\\\\").replace('"', "\\\""));
        forms.insert(secret.replace('/', "\\/"));
        forms.insert(secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;"));
        // The three alignments of a text inside a longer base64 text; the ends depend on the neighbours and are left out.
        for lead in 0..3 {
            let mut padded = vec![0; lead];
            padded.extend_from_slice(bytes);
            let whole = padded.len() / 3 * 3;
            let skip = if lead == 0 { 0 } else { 4 };
            for alphabet in [Alphabet::Standard, Alphabet::Url] {
                let form = base64::encode(&padded[..whole], alphabet);
                if let Some(inner) = form.get(skip..) {
                    forms.insert(inner.to_owned());
                }
            }
        }
    }
    forms.into_iter().filter(|form| form.len() >= FORM_MIN).map(Zeroizing::new).collect()
}

fn percent(bytes: &[u8], escape: impl Fn(u8) -> bool) -> String {
    bytes.iter().map(|byte| if escape(*byte) { format!("%{byte:02X}") } else { char::from(*byte).to_string() }).collect()
}
