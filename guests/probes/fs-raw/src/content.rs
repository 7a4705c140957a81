//! Reading and writing: by descriptor and by stream, at every offset that is allowed and some that aren't.

use crate::bindings::wasi::filesystem::types::{Advice, DescriptorFlags, ErrorCode, OpenFlags};
use crate::bindings::wasi::io::streams::StreamError;
use crate::check::*;

pub(crate) fn flags(c: &mut Checks) {
    let dir = scratch("flags");
    drop(make(&dir, "a", b"a"));
    let at = |path: &str, open: OpenFlags, flags: DescriptorFlags| dir.open_at(NOFOLLOW, path, open, flags);
    let flags_of = |path: &str, open: OpenFlags, flags: DescriptorFlags| at(path, open, flags).and_then(|file| file.get_flags());
    let none = DescriptorFlags::empty();
    c.is("no flags mean read", flags_of("a", OpenFlags::empty(), none), Ok(READ));
    c.is("read", flags_of("a", OpenFlags::empty(), READ), Ok(READ));
    c.is("write alone", flags_of("a", OpenFlags::empty(), WRITE), Ok(WRITE));
    c.is("both", flags_of("a", OpenFlags::empty(), BOTH), Ok(BOTH));
    c.is("exclusive alone means nothing", flags_of("a", OpenFlags::EXCLUSIVE, none), Ok(READ));
    for (name, asked, wanted) in [("n1", none, BOTH), ("n2", READ, BOTH), ("n3", WRITE, WRITE), ("n4", BOTH, BOTH)] {
        c.is("create implies write", flags_of(name, NEW, asked), Ok(wanted));
    }
    c.refused("exclusive on existing", at("a", NEW, WRITE), ErrorCode::Exist);
    c.is("a directory", flags_of(".", OpenFlags::DIRECTORY, READ), Ok(READ));
    c.is("a directory without flags", flags_of(".", OpenFlags::empty(), none), Ok(READ));
    c.is(
        "a directory to change",
        flags_of(".", OpenFlags::DIRECTORY, READ | DescriptorFlags::MUTATE_DIRECTORY),
        Ok(READ | DescriptorFlags::MUTATE_DIRECTORY),
    );
    c.refused("write to a directory", at(".", OpenFlags::empty(), WRITE), ErrorCode::IsDirectory);
    c.refused("create over a directory", at(".", OpenFlags::CREATE, WRITE), ErrorCode::IsDirectory);
    c.refused("directory on a file", at("a", OpenFlags::DIRECTORY, READ), ErrorCode::NotDirectory);
    c.refused("directory and create", at("x", OpenFlags::DIRECTORY | OpenFlags::CREATE, READ), ErrorCode::Invalid);
    c.refused("directory and truncate", at("a", OpenFlags::DIRECTORY | OpenFlags::TRUNCATE, READ), ErrorCode::Invalid);
    c.refused("missing", at("missing", OpenFlags::empty(), READ), ErrorCode::NoEntry);
    c.refused("create in a missing directory", at("no/file", OpenFlags::CREATE, WRITE), ErrorCode::NoEntry);
    c.refused_as(
        "create with a slash",
        at("slash/", OpenFlags::CREATE, WRITE),
        &[ErrorCode::IsDirectory, ErrorCode::NoEntry, ErrorCode::NotDirectory],
    );
    c.is("create existing", at("a", OpenFlags::CREATE, BOTH).and_then(|file| file.stat()).map(|s| s.size), Ok(1));
    c.is("truncate", at("a", OpenFlags::TRUNCATE, WRITE).and_then(|file| file.stat()).map(|s| s.size), Ok(0));
    drop(make(&dir, "a", b"abc"));
    c.refused("truncate and exclusive create on existing", at("a", NEW | OpenFlags::TRUNCATE, WRITE), ErrorCode::Exist);
    c.is("which changed nothing", dir.stat_at(NOFOLLOW, "a").map(|s| s.size), Ok(3));
}

pub(crate) fn reading(c: &mut Checks) {
    let dir = scratch("reading");
    drop(make(&dir, "a", b"test-a\n"));
    let a = open(&dir, "a", READ).unwrap();
    c.is("read all", a.read(100, 0), Ok((b"test-a\n".to_vec(), false)));
    c.is("read at the end", a.read(100, 7), Ok((vec![], true)));
    c.is("read past the end", a.read(100, 17), Ok((vec![], true)));
    c.is("read one", a.read(1, 1), Ok((b"e".to_vec(), false)));
    c.is("read none", a.read(0, 0).map(|(bytes, _)| bytes), Ok(vec![]));
    c.is("read none past the end", a.read(0, 100).map(|(bytes, _)| bytes), Ok(vec![]));
    c.is("a huge length", a.read(u64::MAX, 5), Ok((b"a\n".to_vec(), false)));
    c.is("a huge offset", a.read(1, i64::MAX as u64), Ok((vec![], true)));
    c.refused("an offset beyond i64", a.read(1, u64::MAX), ErrorCode::Invalid);
    c.refused("an offset just beyond i64", a.read(1, 1 << 63), ErrorCode::Invalid);
    for (offset, wanted) in [(0, &b"test-a\n"[..]), (1, b"est-a\n"), (6, b"\n"), (7, b""), (17, b"")] {
        c.is("stream to the end", drain(&a, offset), Ok(wanted.to_vec()));
    }
    c.is("a stream at a huge offset", drain(&a, i64::MAX as u64), Ok(vec![]));
    c.refused("a stream beyond i64", drain(&a, u64::MAX), ErrorCode::Invalid);
    c.is("sync on a reader", a.sync(), Ok(()));
    c.is("sync-data on a reader", a.sync_data(), Ok(()));
    c.refused("write on a reader", a.write(b"x", 0), ErrorCode::BadDescriptor);
    c.refused("a write stream on a reader", a.write_via_stream(0), ErrorCode::BadDescriptor);
    c.refused("an append stream on a reader", a.append_via_stream(), ErrorCode::BadDescriptor);
    c.refused_as("set-size on a reader", a.set_size(0), &[ErrorCode::BadDescriptor, ErrorCode::Invalid]);
    let w = open(&dir, "a", WRITE).unwrap();
    c.refused("read on a writer", w.read(1, 0), ErrorCode::BadDescriptor);
    c.refused("a read stream on a writer", w.read_via_stream(0), ErrorCode::BadDescriptor);
    let d = open(&dir, ".", READ).unwrap();
    c.refused("a read stream on a directory", d.read_via_stream(0), ErrorCode::IsDirectory);
    c.refused_as("read on a directory", d.read(1, 0), &[ErrorCode::BadDescriptor, ErrorCode::IsDirectory]);
    c.refused_as("write on a directory", d.write(b"x", 0), &[ErrorCode::BadDescriptor, ErrorCode::IsDirectory]);
    c.refused_as("a write stream on a directory", d.write_via_stream(0), &[ErrorCode::BadDescriptor, ErrorCode::IsDirectory]);
    c.refused_as("an append stream on a directory", d.append_via_stream(), &[ErrorCode::BadDescriptor, ErrorCode::IsDirectory]);
    c.refused_as("set-size on a directory", d.set_size(0), &[ErrorCode::BadDescriptor, ErrorCode::IsDirectory]);
    c.refused("advise on a directory", d.advise(0, 0, Advice::Normal), ErrorCode::BadDescriptor);
    c.is("sync on a directory", d.sync(), Ok(()));
    c.is("sync-data on a directory", d.sync_data(), Ok(()));
    c.refused("read-directory on a file", a.read_directory(), ErrorCode::NotDirectory);
    for advice in [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::NoReuse] {
        for offset in [0, 7, 4096] {
            for length in [0, 10, 4096, u64::MAX] {
                c.is("advise", a.advise(offset, length, advice), Ok(()));
            }
        }
    }
}

pub(crate) fn writing(c: &mut Checks) {
    let dir = scratch("writing");
    let f = dir.open_at(NOFOLLOW, "f", NEW, BOTH).unwrap();
    c.is("write", f.write(b"hello!", 0), Ok(6));
    c.is("overwrite", f.write(b"bye", 0), Ok(3));
    c.is("content", drain(&f, 0), Ok(b"byelo!".to_vec()));
    c.is("write none", f.write(b"", 100), Ok(0));
    c.is("which doesn't grow it", f.stat().map(|s| s.size), Ok(6));
    c.is("write beyond the end", f.write(b"x", 10), Ok(1));
    c.is("the gap is zeros", drain(&f, 0), Ok(b"byelo!\0\0\0\0x".to_vec()));
    c.refused_as("a huge offset", f.write(b"x", i64::MAX as u64), &[ErrorCode::FileTooLarge]);
    c.refused_as("an offset beyond i64", f.write(b"x", u64::MAX), &[ErrorCode::Invalid, ErrorCode::FileTooLarge]);
    c.is("which changed nothing", f.stat().map(|s| s.size), Ok(11));
    let far = dir.open_at(NOFOLLOW, "far", NEW, BOTH).unwrap();
    c.is("a sparse file", far.write(b"end", 1 << 30), Ok(3));
    c.is("its length", far.stat().map(|s| s.size), Ok((1 << 30) + 3));
    c.is("its hole", far.read(4, 1 << 29), Ok((vec![0; 4], false)));
    c.is("its end", far.read(10, (1 << 30) - 1), Ok((b"\0end".to_vec(), false)));
    drop(far);
    dir.unlink_file_at("far").unwrap();
}

pub(crate) fn streams(c: &mut Checks) {
    let dir = scratch("streams");
    let f = dir.open_at(NOFOLLOW, "f", NEW, BOTH).unwrap();
    {
        let out = f.write_via_stream(0).unwrap();
        c.is("a permit at once", out.check_write().map(|n| n >= 4096).map_err(stream_code), Ok(true));
        c.is("blocking write", out.blocking_write_and_flush(b"0123456789").map_err(stream_code), Ok(()));
        c.is("is visible before the stream is dropped", f.stat().map(|s| s.size), Ok(10));
        c.is("zeroes", out.blocking_write_zeroes_and_flush(3).map_err(stream_code), Ok(()));
        let permit = out.check_write().unwrap();
        c.is("write", out.write(&vec![b'x'; permit as usize]).map_err(stream_code), Ok(()));
        c.is("flush", out.blocking_flush().map_err(stream_code), Ok(()));
        c.is("length", f.stat().map(|s| s.size), Ok(13 + permit));
        f.set_size(13).unwrap();
    }
    c.is("content", drain(&f, 0), Ok(b"0123456789\0\0\0".to_vec()));
    {
        let out = f.write_via_stream(4).unwrap();
        out.blocking_write_and_flush(b"ab").unwrap();
        out.blocking_write_and_flush(b"cd").unwrap();
    }
    c.is("a stream in the middle goes on", drain(&f, 0), Ok(b"0123abcd89\0\0\0".to_vec()));
    {
        let one = f.append_via_stream().unwrap();
        let two = f.append_via_stream().unwrap();
        one.blocking_write_and_flush(b"1").unwrap();
        two.blocking_write_and_flush(b"2").unwrap();
        one.blocking_write_and_flush(b"3").unwrap();
    }
    c.is("appenders don't overwrite each other", drain(&f, 13), Ok(b"123".to_vec()));
    let input = f.read_via_stream(0).unwrap();
    c.is("a zero-length read", input.blocking_read(0).map_err(stream_code), Ok(vec![]));
    let ready = input.subscribe();
    ready.block();
    c.is("ready", ready.ready(), true);
    drop(ready);
    c.is("skip", input.blocking_skip(4).map_err(stream_code), Ok(4));
    c.is("read after skip", input.blocking_read(2).map_err(stream_code), Ok(b"ab".to_vec()));
    let other = f.read_via_stream(12).unwrap();
    c.is("another stream doesn't interfere", other.blocking_read(2).map_err(stream_code), Ok(b"\x001".to_vec()));
    c.is("nor is it interfered with", input.blocking_read(2).map_err(stream_code), Ok(b"cd".to_vec()));
    f.write(b"ZZ", 8).unwrap();
    c.is("a stream sees a later write", input.blocking_read(2).map_err(stream_code), Ok(b"ZZ".to_vec()));
    let mut rest = Vec::new();
    let end = loop {
        match input.blocking_read(1000) {
            Ok(bytes) => rest.extend(bytes),
            Err(error) => break stream_code(error),
        }
    };
    c.is("the rest", rest, b"\0\0\x00123".to_vec());
    c.is("then closed", end, None);
    c.is("and stays closed", matches!(input.blocking_read(1), Err(StreamError::Closed)), true);
    let from = f.read_via_stream(0).unwrap();
    let copy = dir.open_at(NOFOLLOW, "copy", NEW, BOTH).unwrap();
    let to = copy.write_via_stream(0).unwrap();
    let mut copied = 0;
    while let Ok(n) = to.blocking_splice(&from, 5) {
        copied += n;
    }
    c.is("splice", (copied, drain(&copy, 0)), (16, drain(&f, 0)));
    let late = f.write_via_stream(i64::MAX as u64).unwrap();
    c.is("a write stream at a huge offset", late.blocking_write_and_flush(b"x").map_err(stream_code), Err(Some(ErrorCode::FileTooLarge)));
    c.is("is closed afterwards", late.check_write().map_err(stream_code), Err(None));
    c.refused("a write stream beyond i64", f.write_via_stream(u64::MAX), ErrorCode::Invalid);
    let keep = open(&dir, "copy", READ).unwrap().read_via_stream(0).unwrap();
    drop(copy);
    dir.unlink_file_at("copy").unwrap();
    c.is("a stream outlives descriptor and name", keep.blocking_read(4).map_err(stream_code), Ok(b"0123".to_vec()));
    let big: Vec<u8> = (0..1_500_000_u32).map(|i| (i % 253) as u8).collect();
    let file = dir.open_at(NOFOLLOW, "big", NEW, BOTH).unwrap();
    let out = file.write_via_stream(0).unwrap();
    let mut left = &big[..];
    while !left.is_empty() {
        let permit = out.check_write().unwrap() as usize;
        if permit == 0 {
            out.subscribe().block();
            continue;
        }
        let (now, later) = left.split_at(permit.min(left.len()));
        out.write(now).unwrap();
        left = later;
    }
    out.blocking_flush().unwrap();
    c.is("1.5 MB by a stream", drain(&file, 0).map(|read| read == big), Ok(true));
    c.is("and from the middle", drain(&file, 1_000_001).map(|read| read == big[1_000_001..]), Ok(true));
}

pub(crate) fn sizes(c: &mut Checks) {
    let dir = scratch("sizes");
    let f = dir.open_at(NOFOLLOW, "f", NEW, BOTH).unwrap();
    let r = open(&dir, "f", READ).unwrap();
    c.is("grow", f.set_size(42), Ok(()));
    c.is("is seen at once", (f.stat().map(|s| s.size), r.stat().map(|s| s.size)), (Ok(42), Ok(42)));
    c.is("with zeros", drain(&r, 0), Ok(vec![0; 42]));
    f.write(&[7; 42], 0).unwrap();
    c.is("shrink", f.set_size(3), Ok(()));
    c.is("grow again", f.set_size(6), Ok(()));
    c.is("old bytes don't come back", drain(&r, 0), Ok(vec![7, 7, 7, 0, 0, 0]));
    c.refused_as("an impossible size", f.set_size(u64::MAX), &[ErrorCode::Invalid, ErrorCode::FileTooLarge]);
    c.refused_as("a size beyond the limit", f.set_size(1 << 40), &[ErrorCode::FileTooLarge]);
    c.is("which changed nothing", f.stat().map(|s| s.size), Ok(6));
    dir.unlink_file_at("f").unwrap();
    c.is("set-size of an unlinked file", f.set_size(2), Ok(()));
    c.is("is seen by the other descriptor", r.stat().map(|s| s.size), Ok(2));
}
