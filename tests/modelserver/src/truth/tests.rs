use serde_json::Value;

use super::*;

fn truth() -> Truth {
    let step = |launch, result, batch, token| OwnStep {
        launch: Stamp(launch, launch + 5),
        result: Stamp(launch + 10, result),
        batch,
        token,
    };
    Truth {
        request_id: Some("r1".into()),
        shape: Shape::Split,
        path: "/v1/completions".into(),
        streaming: true,
        status: 200,
        outcome: Outcome::Ok,
        first_read: Stamp(90, 100),
        last_read: Stamp(180, 200),
        handoff: Some(300),
        sched: Some(900),
        queue: Some(600),
        steps: vec![step(1000, 2000, 3, false), step(1500, 3000, 2, true), step(2500, 4000, 1, true)],
        first_byte: Some(Stamp(280, 290)),
        last_write: Some(Stamp(4900, 5000)),
        content: vec![(Stamp(3100, 3110), 1), (Stamp(4800, 4810), 1)],
        input_tokens: 4,
        output_tokens: 2,
        blocked: 0,
        cancel: None,
    }
}

#[test]
fn stages_partition_the_wall_time() {
    let stages = truth().stages().unwrap();
    let expected = Stages {
        network_in: 100,
        preprocess: 200,
        queue: 600,
        prefill: 2000,
        decode: 1000,
        postprocess: 1000,
    };
    assert_eq!(stages, expected);
    let line: Value = serde_json::from_str(&truth().line().unwrap()).unwrap();
    assert_eq!(line["e2e_s"], 4.9e-6);
    assert_eq!(line["t_first_result_ns"], serde_json::json!([1510, 3000]));
    assert_eq!(line["batch_sizes"], serde_json::json!([3, 2, 1]));
}

#[test]
fn a_cancelled_request_has_stages_up_to_its_last_write() {
    let mut cancelled = truth();
    cancelled.last_write = Some(Stamp(3100, 3110));
    let stages = cancelled.stages().unwrap();
    assert_eq!((stages.decode, stages.postprocess), (0, 110));
}

#[test]
fn a_request_without_steps_has_no_stages() {
    let cases: [fn(&mut Truth); 3] =
        [|t| t.steps.clear(), |t| t.last_write = None, |t| t.last_write = Some(Stamp(280, 290))];
    for remove in cases {
        let mut refused = truth();
        remove(&mut refused);
        assert_eq!(refused.stages(), None);
        let line: Value = serde_json::from_str(&refused.line().unwrap()).unwrap();
        assert_eq!(line["queue_s"], Value::Null);
    }
}

#[test]
fn queue_is_the_measure_of_the_union() {
    // (closed steps, steps in flight, from, to, busy ns)
    type Case = (&'static [(u64, u64)], &'static [u64], u64, u64, u64);
    let cases: &[Case] = &[
        (&[], &[], 100, 200, 0),
        (&[(0, 50)], &[], 100, 200, 0),
        (&[(0, 150)], &[], 100, 200, 50),
        (&[(120, 130), (140, 160)], &[], 100, 200, 30),
        (&[(100, 150), (120, 180)], &[], 100, 200, 80),
        (&[(50, 300)], &[], 100, 200, 100),
        (&[], &[150], 100, 200, 50),
        (&[], &[50, 150], 100, 200, 100),
        (&[(90, 120)], &[110], 100, 200, 100),
        (&[(110, 120)], &[190, 195], 100, 200, 20),
        (&[(250, 300)], &[310], 100, 200, 0),
        (&[(110, 120)], &[], 150, 150, 0),
    ];
    for &(closed, open, from, to, expected) in cases {
        let mut busy = Busy::default();
        for &(launch, result) in closed {
            busy.begin(launch);
            busy.end(result);
        }
        for &launch in open {
            busy.begin(launch);
        }
        assert_eq!(busy.measure(from, to), expected, "{closed:?} {open:?} [{from}, {to}]");
    }
}

#[test]
fn overlapping_steps_are_kept_as_one_interval() {
    let mut busy = Busy::default();
    for step in 0..1000 {
        busy.begin(step * 10);
        if step > 0 {
            busy.end(step * 10 + 5);
        }
    }
    assert_eq!(busy.closed.len(), 1);
    assert_eq!(busy.measure(0, 9990), 9990);
}

#[test]
fn old_steps_are_forgotten() {
    let mut busy = Busy::default();
    for launch in [0, MEMORY_NS * 2] {
        busy.begin(launch);
        busy.end(launch + 10);
    }
    assert_eq!(busy.closed.len(), 1);
}
