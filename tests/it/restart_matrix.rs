//! The restart matrix: every point of a turn, every way of going on, on a folder and on S3. A row is red when anything in the store isn't as
//! if nothing had happened.

use landfall::drill::Point;
use landfall_tests::matrix::{GoesOn, Matrix, Outcome, Row, rows};
use landfall_tests::seaweed::Seaweed;

/// How many rows run at a time: most of a row is waiting for a lease to end.
const AT_A_TIME: usize = 8;

async fn outcomes(rows: Vec<Row>, seaweed: Option<Seaweed>) -> Vec<Outcome> {
    let matrix = Matrix::new(seaweed).await.unwrap();
    // The git server runs on this runtime, so the rows have threads of their own.
    tokio::task::spawn_blocking(move || matrix.run(&rows, AT_A_TIME)).await.unwrap().unwrap()
}

#[expect(clippy::print_stdout, reason = "the table is for whoever looks at a red row")]
async fn green(rows: Vec<Row>, seaweed: Option<Seaweed>) {
    let count = rows.len();
    let outcomes = outcomes(rows, seaweed).await;
    assert_eq!(outcomes.len(), count);
    let mut red = Vec::new();
    for Outcome { row, fault, took } in &outcomes {
        match fault {
            None => println!("green  {row}  {} ms", took.as_millis()),
            Some(fault) => red.push(format!("RED    {row}  {fault}")),
        }
    }
    assert!(red.is_empty(), "{} of {count} rows are red\n{}", red.len(), red.join("\n"));
}

#[test]
fn the_docs_have_the_number_of_rows_and_every_point() {
    let count: usize =
        [GoesOn::Same, GoesOn::Other, GoesOn::Two, GoesOn::OtherAndThenTheFrozen].into_iter().map(|way| rows(way).len()).sum();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md")).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("That is {count} rows on a folder and {count} on S3")), "{count}");
    assert!(text.contains(&format!("at each of the {} points", Point::ALL.len())), "{}", Point::ALL.len());
    for point in Point::ALL {
        assert!(text.contains(&format!("`{}`", point.name())), "{}", point.name());
    }
}

/// A fixed third of the rows.
fn third(of: GoesOn, from: usize) -> Vec<Row> {
    rows(of).into_iter().skip(from).step_by(3).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_a_folder_and_started_again() {
    green(rows(GoesOn::Same), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_a_folder_and_taken_over() {
    green(rows(GoesOn::Other), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_a_folder_and_taken_over_by_two_at_once() {
    green(rows(GoesOn::Two), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_on_a_folder_and_woken_when_all_is_over() {
    green(rows(GoesOn::OtherAndThenTheFrozen), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_of_the_rows_on_s3() {
    let all = [third(GoesOn::Same, 0), third(GoesOn::Other, 1), third(GoesOn::Two, 2), third(GoesOn::OtherAndThenTheFrozen, 0)];
    green(all.concat(), Some(Seaweed::shared().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: a third of these rows runs every time"]
async fn all_rows_on_s3() {
    let all = [GoesOn::Same, GoesOn::Other, GoesOn::Two, GoesOn::OtherAndThenTheFrozen].map(rows);
    green(all.concat(), Some(Seaweed::shared().await)).await;
}

/// Without a safeguard at least one row has to be red: else the matrix shows nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_safeguard_a_row_turns_red() {
    use landfall::drill::Safeguard;
    let rows = [
        (Safeguard::CompareAndSwap, Point::CommitBefore, GoesOn::OtherAndThenTheFrozen),
        (Safeguard::OfficialRecords, Point::CommitBefore, GoesOn::Other),
        (Safeguard::RecordFence, Point::RecordBefore, GoesOn::OtherAndThenTheFrozen),
    ]
    .map(|(safeguard, point, goes_on)| Row { point, goes_on, without: Some(safeguard) });
    for Outcome { row, fault, .. } in outcomes(rows.to_vec(), None).await {
        assert!(fault.is_some(), "{row} is green");
        println!("red as it has to be: {row}: {}", fault.unwrap_or_default());
    }
}
