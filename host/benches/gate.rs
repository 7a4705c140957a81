//! What the gate takes to decide about a request, name servers apart.
//!
//! `cargo bench -p landfall --bench gate`

#![allow(clippy::expect_used, reason = "a benchmark that can't be set up ends")]

use criterion::{Criterion, criterion_group, criterion_main};
use http::Method;
use landfall::policy::addresses::OwnAddresses;
use landfall::policy::egress::{Ask, Egress};
use landfall::policy::hosts::HostList;
use landfall::policy::resolve::{Answer, GivenAnswers};

fn gate(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // As long as a list gets that a person keeps by hand; the host asked for is its last entry.
    let listed: Vec<String> = (0..49).map(|n| format!("https://host-{n}.example.net/v1")).chain(["*.example.com".to_owned()]).collect();
    let list = HostList::parse(listed.iter().map(String::as_str)).expect("patterns");
    let (egress, own) = (Egress::listed("bench", list), OwnAddresses::read().expect("this machine's addresses"));
    let addresses = ["93.184.216.34", "93.184.216.35", "2606:2800:220:1:248:1893:25c8:1946", "2606:2800:220:1:248:1893:25c8:1947"];
    let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    let resolver = GivenAnswers::new().every(Answer::Addresses(addresses));
    let headers: [(&str, &[u8]); 4] =
        [("accept", b"application/json"), ("user-agent", b"an agent"), ("content-type", b"application/json"), ("x-request-id", b"1")];
    for (name, url) in [
        ("allowed, four addresses", "https://api.example.com/v1/items?page=2"),
        ("denied by the list", "https://elsewhere.example.org/v1/items?page=2"),
        ("denied by the form of the host", "https://0x7f.1/"),
    ] {
        criterion.bench_function(&format!("gate: {name}"), |bencher| {
            let ask = Ask { url, method: &Method::GET, headers: &headers, from: None };
            bencher.iter(|| runtime.block_on(egress.admit(&ask, &resolver, &own)));
        });
    }
}

criterion_group!(benches, gate);
criterion_main!(benches);
