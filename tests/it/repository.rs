//! Repositories, against the real git: what a session gets is what `git checkout` gives, what it hands back is what `git apply` takes,
//! and no secret is anywhere.

mod commits;
mod export;
mod generated;
mod imports;
mod pins;
mod private;
mod remotes;
mod support;
