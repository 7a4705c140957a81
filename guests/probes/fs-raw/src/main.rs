//! Calls `wasi:filesystem` directly and checks each answer against what the interface and POSIX say.
//! Prints a line for each check that failed and a count at the end; without arguments it does everything in [`ALL`].
//! `bare NAME` does one thing that needs a host set up for it and prints what came of it.

mod bare;
mod check;
mod content;
mod directory;
mod metadata;
mod naming;

mod bindings {
    wit_bindgen::generate!({
        inline: r"
            package landfall:fs-probe;
            world probe {
                import wasi:filesystem/types@0.2.12;
                import wasi:filesystem/preopens@0.2.12;
            }
        ",
        path: "../../../wit",
        generate_all,
    });
}

use check::Checks;

const ALL: &[(&str, fn(&mut Checks))] = &[
    ("preopens", naming::preopens),
    ("paths", naming::paths),
    ("symlinks", naming::symlinks),
    ("links", naming::links),
    ("renames", naming::renames),
    ("removal", naming::removal),
    ("flags", content::flags),
    ("reading", content::reading),
    ("writing", content::writing),
    ("streams", content::streams),
    ("sizes", content::sizes),
    ("listing", directory::listing),
    ("directories", directory::directories),
    ("times", metadata::times),
    ("identity", metadata::identity),
    ("stats", metadata::stats),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [bare, name, rest @ ..] = args.as_slice()
        && bare == "bare"
    {
        return bare::run(name, rest);
    }
    let mut checks = Checks::default();
    for (name, job) in ALL {
        if args.is_empty() || args.iter().any(|arg| arg == name) {
            checks.topic(name);
            job(&mut checks);
        }
    }
    checks.finish();
}
