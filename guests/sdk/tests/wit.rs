//! Holds the WIT to its own rules: every item is documented and says since when it is there.

use std::path::Path;

use wit_parser::{Docs, Resolve, Stability, Type, TypeDefKind};

#[test]
fn every_item_is_documented_and_dated() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")).unwrap();
    let mut seen = 0;
    let mut wrong = Vec::new();
    let mut check = |name: String, docs: &Docs, stability: Option<&Stability>| {
        seen += 1;
        if docs.contents.as_ref().is_none_or(|text| text.trim().is_empty()) {
            wrong.push(format!("{name} has no docs"));
        }
        if stability.is_some_and(Stability::is_unknown) {
            wrong.push(format!("{name} has no @since"));
        }
    };
    let members = &resolve.packages[package];
    check("the package".to_owned(), &members.docs, None);
    for (name, id) in &members.worlds {
        check(format!("world {name}"), &resolve.worlds[*id].docs, Some(&resolve.worlds[*id].stability));
    }
    for (name, id) in &members.interfaces {
        let interface = &resolve.interfaces[*id];
        check(format!("interface {name}"), &interface.docs, Some(&interface.stability));
        for (function, item) in &interface.functions {
            check(format!("{name}.{function}"), &item.docs, Some(&item.stability));
        }
        for (member, id) in &interface.types {
            let item = &resolve.types[*id];
            // What `use` brought in is documented where it is from.
            if matches!(item.kind, TypeDefKind::Type(Type::Id(_))) {
                continue;
            }
            check(format!("{name}.{member}"), &item.docs, Some(&item.stability));
            let parts: Vec<(&String, &Docs)> = match &item.kind {
                TypeDefKind::Record(record) => record.fields.iter().map(|field| (&field.name, &field.docs)).collect(),
                TypeDefKind::Variant(variant) => variant.cases.iter().map(|case| (&case.name, &case.docs)).collect(),
                TypeDefKind::Enum(cases) => cases.cases.iter().map(|case| (&case.name, &case.docs)).collect(),
                TypeDefKind::Flags(flags) => flags.flags.iter().map(|flag| (&flag.name, &flag.docs)).collect(),
                _ => Vec::new(),
            };
            for (part, docs) in parts {
                check(format!("{name}.{member}.{part}"), docs, None);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 100, "only {seen} items were looked at");
}
