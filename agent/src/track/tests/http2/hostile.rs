//! What peers should not say.

use wire::socket::{DIR_RECV, DIR_SEND, tcp};

use super::{
    super::rig::{Lcg, PID, Rig},
    PREFACE, SETTINGS, accepted, field, frame, message, post,
};
use crate::track::TrackSettings;

#[test]
fn streams_without_end_are_bounded() {
    let mut rig = accepted();
    for n in 0..10_000 {
        rig.recv(1, frame(1, 5, 1 + 2 * n, &post("/v1/completions")));
    }
    assert!(rig.health.limits["http2_streams"] > 9000);
    rig.recv(1, frame(1, 0, 20_001, &post("/a")));
    for _ in 0..2000 {
        rig.recv(1, frame(9, 0, 20_001, &[0x00; 1000]));
    }
    rig.recv(1, frame(9, 4, 20_001, b""));
    assert!(rig.health.ignored["http2_headers_unknown"] > 0);
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
    assert_eq!(rig.finished().len(), 10_001);
}

#[test]
fn any_bytes_in_any_order_do_no_harm() {
    let mut parts: Vec<Vec<u8>> = vec![
        PREFACE.to_vec(),
        SETTINGS.to_vec(),
        frame(4, 0, 0, &[0, 5, 0, 0xff, 0xff, 0xff]),
        frame(1, 4, 1, &post("/v1/completions")),
        frame(1, 5, 3, &post("/inference.GRPCInferenceService/ModelInfer")),
        frame(1, 4, 5, &[&[0x83][..], &field("content-type", "application/grpc")].concat()),
        frame(1, 4, 1, &[&[0x88][..], &field("content-type", "text/event-stream")].concat()),
        frame(1, 4, 3, &[&[0x88][..], &field("content-type", "application/grpc")].concat()),
        frame(1, 5, 3, &field("grpc-status", "0")),
        frame(1, 0, 7, &[0x83, 0x40]),
        frame(9, 4, 7, &[0xbe]),
        frame(0, 0, 1, b"data: {\"choices\":[{\"text\":\"a\"}]}\n\n"),
        frame(0, 1, 1, b"data: [DONE]\n\n"),
        frame(0, 0, 3, &message(b"\x0a\x01m")),
        frame(0, 8, 3, &message(b"\x0a\x01m")),
        frame(3, 0, 1, &[0; 4]),
        frame(7, 0, 0, &[0; 8]),
        vec![0xff; 9],
        b"\0\0\0\0\0\0\0\0\x01".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    parts.push(frame(5, 4, 1, &[0, 0, 0, 2, 0x82]));
    let mut lcg = Lcg::new(5);
    let mut rig = Rig::with(TrackSettings::default());
    let mut next = 1;
    for round in 0..60_000_u64 {
        let sock = round % 20;
        match lcg.below(60) {
            0..3 => rig.open(sock, u8::try_from(lcg.below(3)).unwrap(), u8::try_from(lcg.below(2)).unwrap()),
            3 => rig.state(sock, tcp::ESTABLISHED, [4, 7, 8][lcg.below(3)], [0, PID][lcg.below(2)]),
            4 => rig.lose(sock, [DIR_RECV, DIR_SEND][lcg.below(2)], lcg.below(100)),
            5 => rig.fail(sock, [DIR_RECV, DIR_SEND][lcg.below(2)], [0, -11, -32, -5][lcg.below(4)]),
            _ => {
                let mut bytes = Vec::new();
                for _ in 0..=lcg.below(4) {
                    let mut part = parts[lcg.below(parts.len())].clone();
                    if lcg.below(3) == 0 && part.len() > 8 {
                        next += 2;
                        part[7..9].copy_from_slice(&u16::try_from(next % 60_000).unwrap().to_be_bytes());
                    }
                    bytes.extend(part);
                }
                if lcg.below(6) == 0 {
                    let at = lcg.below(bytes.len());
                    bytes[at] = lcg.next().to_le_bytes()[0];
                }
                let len = bytes.len();
                let head = if lcg.below(5) == 0 { lcg.below(len + 1) } else { len };
                let tail = (len - head).min(lcg.below(200));
                rig.call(sock, [DIR_RECV, DIR_SEND][lcg.below(2)], &bytes, (head, tail), len + lcg.below(2));
            }
        }
    }
    assert!(rig.finished().len() > 1000, "{}", rig.finished().len());
    rig.assert_replays();
}
