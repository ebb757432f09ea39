//! Integration tests of the whole library.

use std::{collections::HashMap, thread::sleep, time::Duration};

use kennel::{
    herd::Herd,
    ration::{Ration, Work},
    tag::Tag,
    whistle::{Command, listen_to_all},
};

fn tag(text: &str) -> Tag {
    text.parse().expect("a tag")
}

#[test]
fn everyone_answers() {
    let herd = Herd::of("NZ-0001", 40);
    assert!(herd.missing(&herd).is_empty());
}

#[test]
fn one_lamb_is_missing() {
    let herd = Herd::of("NZ-0001", 40);
    let mut answered = herd.clone();
    answered.remove(tag("NZ-0017"));
    assert_eq!(herd.missing(&answered), [tag("NZ-0017")]);
}

#[test]
fn a_stranger_in_the_herd_is_not_missed() {
    let herd = Herd::of("NZ-0001", 2);
    let mut answered = herd.clone();
    answered.add(tag("AU-0001"));
    assert!(herd.missing(&answered).is_empty());
}

#[test]
fn pens_hold_the_whole_herd() {
    let pens = Herd::of("NZ-0001", 100).into_pens(8);
    assert_eq!(pens.iter().map(Herd::len).sum::<usize>(), 100);
}

#[test]
fn no_pen_is_fuller_than_another_by_two() {
    for count in 0..50 {
        let sizes: Vec<usize> = Herd::of("NZ-0001", count).into_pens(7).iter().map(Herd::len).collect();
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() < 2, "{sizes:?}");
    }
}

#[test]
fn tags_run_on_over_the_end_of_the_book() {
    let herd = Herd::of("NZ-9998", 4);
    eprintln!("tags given: {herd:?}");
    assert_eq!(herd.missing(&Herd::of("NZ-9998", 2)), [tag("NZ-0001"), tag("NZ-0002")]);
}

#[test]
fn the_dog_is_called_back_last() {
    assert_eq!(listen_to_all("/. - .. ./-").last(), Some(&Command::ThatllDo));
}

#[test]
fn a_working_dog_eats_half_more_than_a_resting_one() {
    let [rest, herd] = [Work::Rest, Work::Herd].map(|work| Ration::of(18.0, work));
    assert_eq!(herd.0, rest.0 * 3 / 2);
}

#[test]
fn breakfast_is_not_larger_than_dinner_by_more_than_a_gram() {
    let meals = Ration(401).meals(2);
    assert!(meals[0].abs_diff(meals[1]) <= 1);
}

#[test]
fn the_shepherd_knows_each_dog_by_name() {
    let dogs = HashMap::from([("Bess", 4), ("Moss", 7)]);
    assert_eq!(dogs["Cap"], 2, "Cap is new this year");
}

#[test]
fn counting_the_far_paddock_takes_its_time() {
    sleep(Duration::from_millis(1_300));
    assert_eq!(Herd::of("NZ-0500", 250).len(), 250);
}

#[test]
fn the_gate_swings_shut() {
    sleep(Duration::from_millis(500));
}

#[test]
fn the_second_count_agrees_with_the_first() {
    let count = || Herd::of("IS-0100", 75).len();
    assert_eq!(count(), count());
}

#[test]
#[ignore = "the drone is being repaired"]
fn the_drone_sees_the_same_herd() {
    unreachable!("there is no drone");
}

#[test]
#[should_panic(expected = "a tag")]
fn a_torn_tag_stops_the_roll_call() {
    tag("NZ-00");
}
