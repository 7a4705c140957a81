//! Single jobs for a host that is set up for them: small quotas, a store that fails, a full table.

use crate::bindings::wasi::filesystem::types::{DescriptorFlags, OpenFlags};
use crate::bindings::wasi::io::streams::StreamError;
use crate::check::*;

pub(crate) fn run(name: &str, args: &[String]) {
    let arg = |i: usize| args.get(i).map(String::as_str).expect("an argument");
    match name {
        // Writes by a stream until the host refuses, and prints the code of the stream's error.
        "fill" => {
            let root = preopen(arg(0));
            let file = root.open_at(NOFOLLOW, "filled", OpenFlags::CREATE, BOTH).expect("open");
            let out = file.append_via_stream().expect("append");
            let mut written = 0;
            let code = loop {
                match out.blocking_write_and_flush(&[b'x'; 4096]) {
                    Ok(()) => written += 4096,
                    Err(error) => break stream_code(error),
                }
            };
            let first = file.write(&[0; 8192], 0).map_err(|code| code.name());
            let more = file.write(&[0; 8192], written).map_err(|code| code.name());
            println!("{written} bytes, then {:?}; write in it {first:?}, behind it {more:?}", code.map(|code| code.name()));
            println!("size {}", file.stat().expect("stat").size);
        }
        // Makes directories until the host refuses.
        "crowd" => {
            let root = preopen(arg(0));
            for number in 0.. {
                if let Err(code) = root.create_directory_at(&format!("d{number}")) {
                    println!("{number} entries, then {}", code.name());
                    break;
                }
            }
        }
        // Opens the same directory until the host refuses.
        "hold" => {
            let root = preopen(arg(0));
            let mut held = Vec::new();
            for number in 0..arg(1).parse::<u32>().expect("a number") {
                match root.open_at(NOFOLLOW, ".", OpenFlags::DIRECTORY, DescriptorFlags::READ) {
                    Ok(dir) => held.push(dir),
                    Err(code) => return println!("{number} held, then {}", code.name()),
                }
            }
            println!("{} held", held.len());
        }
        // Reads a file by a stream and prints how it ended.
        "read" => {
            let root = preopen(arg(0));
            let file = open(&root, arg(1), READ).expect("open");
            let stream = file.read_via_stream(0).expect("stream");
            let mut length = 0;
            let end = loop {
                match stream.blocking_read(1 << 16) {
                    Ok(bytes) => length += bytes.len(),
                    Err(StreamError::Closed) => break String::from("the end"),
                    Err(error) => break format!("{:?}", stream_code(error).map(|code| code.name())),
                }
            };
            println!("{length} bytes, then {end}");
        }
        // Reads a file by polling, as an event loop does.
        "poll" => {
            let root = preopen(arg(0));
            let file = open(&root, arg(1), READ).expect("open");
            let stream = file.read_via_stream(0).expect("stream");
            let (mut length, mut waits) = (0, 0);
            loop {
                match stream.read(1 << 16) {
                    Ok(bytes) if bytes.is_empty() => {
                        waits += 1;
                        stream.subscribe().block();
                    }
                    Ok(bytes) => length += bytes.len(),
                    Err(_) => break,
                }
            }
            println!("{length} bytes, waited {}", waits > 0);
        }
        "list" => println!("{:?}", names(&preopen(arg(0)))),
        _ => panic!("unknown job {name}"),
    }
}
