//! Curves of a simulated server whose knee is known from how it is made.

use super::*;
use crate::request::record::Outcome;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A server that works on at most `slots` requests at a time, each taking `work_ms` and, for each beside it,
/// `beside_us` more; the others wait, first come first served. Clients ask again as soon as they have an answer.
struct Server {
    slots: usize,
    work_ms: u64,
    beside_us: u64,
    random: u64,
}

impl Server {
    fn random(&mut self, most: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % most.max(1)
    }

    /// So many clients for so long; each request as (begin, end).
    fn serve(&mut self, clients: usize, from_ns: u64, seconds: u64) -> Vec<[u64; 2]> {
        let mut asked: Vec<u64> = (0..clients as u64).map(|n| from_ns + n * MS).collect();
        let mut free: Vec<u64> = vec![from_ns; self.slots];
        let mut all = Vec::new();
        loop {
            let next = (0..clients).min_by_key(|n| asked[*n]).unwrap_or(0);
            let begin = asked[next];
            if begin >= from_ns + seconds * S {
                return all;
            }
            let slot = (0..free.len()).min_by_key(|n| free[*n]).unwrap_or(0);
            let starts = begin.max(free[slot]);
            let beside = free.iter().filter(|until| **until > starts).count() as u64;
            let vary = 900 + self.random(200);
            let end = starts + (self.work_ms * MS + beside * self.beside_us * 1000) * vary / 1000;
            free[slot] = end;
            asked[next] = end + MS;
            all.push([begin, end]);
        }
    }
}

fn record([begin, end]: [u64; 2], output: u64) -> RequestRecord {
    RequestRecord {
        service: "svc".into(),
        model: Some("m".into()),
        outcome: Some(Outcome::Ok),
        t_first_byte_in_ns: Some(begin),
        t_last_byte_out_ns: Some(end),
        e2e_s: Some((end - begin) as f64 / 1e9),
        ttft_s: Some((end - begin) as f64 / 2e9),
        input_tokens: Some(100),
        output_tokens: Some(output),
        ..RequestRecord::default()
    }
}

/// What is told after each of these numbers of clients had twenty seconds.
fn told(server: &mut Server, clients: &[usize], question: Question, output: fn(usize) -> u64) -> Told {
    let (mut capacity, mut now) = (Capacity::default(), 100 * S);
    for clients in clients {
        let mut all = server.serve(*clients, now, 20);
        all.sort_by_key(|[_, end]| *end);
        for request in all {
            capacity.request(&record(request, output(*clients)));
            capacity.pass(request[1]);
        }
        now += 22 * S;
    }
    capacity.pass(now + 300 * S);
    let mut all = capacity.told(question, now, |_| None);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

const RISING: &[usize] = &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];

#[test]
fn the_knee_is_where_the_slots_are_full() {
    for (slots, beside_us) in [(4, 0), (8, 0), (16, 0), (8, 2_000), (16, 2_000), (24, 500)] {
        let mut server = Server { slots, work_ms: 100, beside_us, random: 1 };
        let told = told(&mut server, RISING, Question::default(), |_| 20);
        let knee =
            told.knee.unwrap_or_else(|| panic!("{slots} slots: {:?} of {:#?}", told.refusal, told.points));
        let off = knee.concurrency / slots as f64;
        assert!((0.85..=1.15).contains(&off), "{slots} slots, {beside_us} us: {knee:?}");
        assert_eq!(told.suggested_concurrency, Some(knee.concurrency));
        assert!((told.alarm_concurrency.unwrap() / knee.concurrency - 0.8).abs() < 1e-9);
        assert!(knee.r2 > 0.95, "{knee:?}");
    }
}

#[test]
fn what_the_traffic_does_not_show_is_refused() {
    let reason = |clients: &[usize], output: fn(usize) -> u64| {
        let mut server = Server { slots: 16, work_ms: 100, beside_us: 0, random: 1 };
        let told = told(&mut server, clients, Question::default(), output);
        assert!(told.knee.is_none() && told.suggested_concurrency.is_none(), "{told:#?}");
        told.refusal.unwrap()
    };
    assert!(matches!(reason(&[3], |_| 20), Refusal::TooNarrow { .. }));
    assert!(matches!(reason(&[30], |_| 20), Refusal::TooNarrow { .. }), "full all the time");
    assert!(matches!(reason(&[1, 2, 4, 8], |_| 20), Refusal::StillGrows { .. }));
    assert!(matches!(reason(&[1, 2, 4, 8, 12, 16], |_| 20), Refusal::StillGrows { .. }), "just reached");
    let drifts = |clients| if clients > 16 { 60 } else { 20 };
    assert!(matches!(reason(RISING, drifts), Refusal::InputsDiffer { .. }));
    let told = judge(&Curve::default(), None);
    assert!(matches!(told.refusal, Some(Refusal::TooFewRequests { requests: 0, .. })));
}

#[test]
fn a_limit_of_time_to_first_token_is_kept() {
    let question = Question { ttft_slo_s: Some(0.060), ..Question::default() };
    let mut server = Server { slots: 8, work_ms: 100, beside_us: 0, random: 1 };
    let told = told(&mut server, RISING, question, |_| 20);
    // Half of a request's time: 50 ms, give or take five, as long as nobody waits.
    let slo = told.slo_concurrency.unwrap();
    assert!((5.0..=8.5).contains(&slo), "{slo}");
    assert!(told.suggested_concurrency.unwrap() <= slo);
}

#[test]
fn nothing_is_suggested_where_nothing_keeps_the_limit() {
    let question = Question { ttft_slo_s: Some(0.001), ..Question::default() };
    let mut server = Server { slots: 8, work_ms: 100, beside_us: 0, random: 1 };
    let told = told(&mut server, RISING, question, |_| 20);
    assert!(told.knee.is_some() && told.suggested_concurrency.is_none(), "nothing keeps it");
}

#[test]
fn throughput_and_times_are_those_of_their_concurrency() {
    let mut server = Server { slots: 8, work_ms: 100, beside_us: 0, random: 1 };
    let told = told(&mut server, RISING, Question::default(), |_| 20);
    for point in told.points.iter().filter(|point| point.seconds > 5.0) {
        let n = point.concurrency;
        let rate = n.min(8.0) / 0.1;
        assert!((point.requests_per_s / rate - 1.0).abs() < 0.08, "{point:?}");
        assert!((point.output_tokens_per_s / rate / 20.0 - 1.0).abs() < 0.08, "{point:?}");
        let usual = f64::max(0.1, n * 0.1 / 8.0);
        let Some(e2e) = point.e2e_s.filter(|e2e| e2e.count > 50) else { continue };
        assert!((e2e.p50 / usual - 1.0).abs() < 0.2, "{point:?}");
    }
}

#[test]
fn models_are_bounded_and_the_window_is_kept() {
    let mut capacity = Capacity::default();
    for n in 0..200_u64 {
        let record = RequestRecord { service: format!("svc{n}"), ..record([n * S, n * S + MS], 1) };
        capacity.request(&record);
    }
    assert_eq!(capacity.kept.len(), MAX_SUBJECTS);
    assert_eq!(capacity.limits().models, 200 - MAX_SUBJECTS as u64);
    let hours = 3 * 3600;
    for n in 0..hours {
        capacity.request(&record([n * S, n * S + 50 * MS], 1));
        capacity.pass(n * S);
    }
    // An hour without requests makes room for others.
    assert!(capacity.kept.keys().any(|subject| subject.service == "svc"));
    let kept = &capacity.kept[&Subject { service: "svc".into(), model: Some("m".into()) }];
    assert!(kept.epochs.len() <= EPOCHS, "{}", kept.epochs.len());
}
