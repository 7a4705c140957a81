//! Repositories, against the real git: what a session gets is what `git checkout` gives, what it hands back is what `git apply` takes,
//! and no secret is anywhere.

mod export;
mod imports;
mod remotes;
mod support;
