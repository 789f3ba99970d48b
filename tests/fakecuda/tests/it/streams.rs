//! Order in streams, across streams, and capture. Kernels are milliseconds long, so that "not yet" holds on a busy
//! machine too.

use cuda::*;

use crate::isolated::*;

const MS: u64 = 1_000_000;

fn elapsed(start: u64, end: u64) -> Result<f32, CUresult> {
    let mut ms = 0.0;
    match cuEventElapsedTime(Some(&mut ms), start, end) {
        0 => Ok(ms),
        error => Err(error),
    }
}

#[test]
fn a_stream_runs_in_order_and_streams_share_the_engine() {
    isolated("streams::a_stream_runs_in_order_and_streams_share_the_engine", &[], || {
        let gpu = Gpu::new();
        let (a, b) = (stream(1), stream(1));
        let before = monotonic_ns();
        gpu.launch(50_000, a);
        gpu.launch(50_000, a);
        gpu.launch(100_000, b);
        assert_eq!((cuStreamQuery(a), cuStreamQuery(b)), (NOT_READY, NOT_READY));
        ok(cuStreamSynchronize(a));
        assert!(monotonic_ns() - before >= 100 * MS);
        assert_eq!((cuStreamQuery(a), cuStreamQuery(b)), (0, NOT_READY));
        ok(cuCtxSynchronize());
        assert!(monotonic_ns() - before >= 200 * MS);
        assert_eq!(cuStreamQuery(b), 0);
    });
}

#[test]
fn copies_overlap_kernels_unless_an_event_orders_them() {
    isolated("streams::copies_overlap_kernels_unless_an_event_orders_them", &[], || {
        let gpu = Gpu::new();
        let (main, side) = (stream(1), stream(1));
        let memory = get(|out| cuMemAlloc_v2(out, 4096));
        let mut host = [0_u8; 64];
        gpu.launch(300_000, main);
        ok(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, 64, side));
        ok(cuStreamSynchronize(side));
        assert_eq!(cuStreamQuery(main), NOT_READY, "the copy engine does not wait for the kernel");

        let (done, copied) = (event(), event());
        ok(cuEventRecord(done, main));
        gpu.launch(300_000, main);
        ok(cuStreamWaitEvent(side, done, 0));
        ok(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, 64, side));
        ok(cuEventRecord(copied, side));
        assert_eq!((cuEventQuery(done), cuEventQuery(copied)), (NOT_READY, NOT_READY));
        assert_eq!(elapsed(done, copied), Err(NOT_READY));
        ok(cuEventSynchronize(copied));
        assert_eq!((cuEventQuery(done), cuStreamQuery(main)), (0, NOT_READY), "step N ends while N + 1 runs");
        assert!(elapsed(done, copied).unwrap() > 0.0);
    });
}

#[test]
fn an_event_keeps_the_mark_of_its_last_record() {
    isolated("streams::an_event_keeps_the_mark_of_its_last_record", &[], || {
        let gpu = Gpu::new();
        let s = stream(1);
        let (start, end) = (event(), event());
        assert_eq!(
            (cuEventQuery(start), cuEventSynchronize(start)),
            (0, 0),
            "never recorded: nothing to wait for"
        );
        assert_eq!(elapsed(start, end), Err(400));
        ok(cuEventRecord(start, s));
        gpu.launch(20_000, s);
        ok(cuEventRecordWithFlags(end, s, 0));
        gpu.launch(200_000, s);
        ok(cuEventSynchronize(end));
        assert_eq!(cuStreamQuery(s), NOT_READY);
        let ms = elapsed(start, end).unwrap();
        assert!((20.0..200.0).contains(&ms), "{ms}");
        ok(cuEventRecord(end, s));
        assert_eq!(cuEventQuery(end), NOT_READY);

        let untimed = get(|out| cuEventCreate(out, 2));
        ok(cuEventRecord(untimed, s));
        assert_eq!(elapsed(start, untimed), Err(400));
    });
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_only() {
    isolated("streams::the_legacy_stream_waits_for_blocking_streams_only", &[], || {
        let gpu = Gpu::new();
        let (blocking, free) = (stream(0), stream(1));
        let mark = event();
        gpu.launch(200_000, free);
        ok(cuEventRecord(mark, 0));
        assert_eq!(cuEventQuery(mark), 0, "non-blocking streams do not count");
        gpu.launch(200_000, blocking);
        ok(cuEventRecord(mark, 0));
        assert_eq!(cuEventQuery(mark), NOT_READY);
        assert_eq!((cuStreamQuery(0), cuStreamQuery_ptsz(0)), (NOT_READY, 0), "0 depends on the variant");
        assert_eq!((cuStreamQuery(1), cuStreamQuery(2)), (NOT_READY, 0), "1 and 2 do not");
        ok(cuStreamSynchronize(0));
        assert_eq!(cuStreamQuery(blocking), 0);

        gpu.launch(200_000, 0);
        ok(cuEventRecord(mark, blocking));
        assert_eq!(cuEventQuery(mark), NOT_READY, "and blocking streams wait for the legacy one");
        ok(cuEventRecord(mark, free));
        ok(cuEventSynchronize(mark));
        assert_eq!(cuStreamQuery(0), NOT_READY);
    });
}

#[test]
fn a_full_queue_blocks_the_launch() {
    isolated("streams::a_full_queue_blocks_the_launch", &[("FAKECUDA_UNIT_NS", "100000")], || {
        let gpu = Gpu::new();
        let s = stream(1);
        let before = monotonic_ns();
        for _ in 0..1024 + 200 {
            gpu.launch(1, s);
        }
        let submitted = monotonic_ns() - before;
        assert!(submitted >= 199 * MS / 10, "200 launches had to wait for 200 others: {submitted}");
        assert_eq!(cuStreamQuery(s), NOT_READY);
        ok(cuStreamSynchronize(s));
        assert!(monotonic_ns() - before >= 1224 * MS / 10);
    });
}

#[test]
fn captured_work_runs_only_with_its_graph() {
    let body = || {
        let gpu = Gpu::new();
        let (main, side) = (stream(1), stream(1));
        let (fork, join) = (event(), event());
        ok(cuStreamBeginCapture_v2(main, 0));
        gpu.launch(50_000, main);
        ok(cuEventRecord(fork, main));
        ok(cuStreamWaitEvent(side, fork, 0));
        gpu.launch(50_000, side);
        ok(cuEventRecord(join, side));
        ok(cuStreamWaitEvent(main, join, 0));
        assert_eq!(cuEventQuery(join), 907, "an event of a capture has no time");
        let mut graph = 0;
        assert_eq!(cuStreamEndCapture(side, Some(&mut graph)), 903, "the origin must end it");
        ok(cuStreamEndCapture(main, Some(&mut graph)));
        assert_eq!(cuStreamEndCapture(main, Some(&mut graph)), 401);

        let graph = {
            ok(cuStreamBeginCapture_v2(main, 0));
            gpu.launch(60_000, main);
            gpu.launch(40_000, main);
            get(|out| cuStreamEndCapture(main, out))
        };
        assert_eq!(
            (cuStreamQuery(main), cuStreamQuery(side)),
            (0, 0),
            "nothing ran, and both are free again"
        );
        let exec = get(|out| cuGraphInstantiateWithFlags(out, graph, 0));
        ok(cuGraphDestroy(graph));
        let before = monotonic_ns();
        ok(cuGraphLaunch(exec, main));
        ok(cuGraphLaunch_ptsz(exec, main));
        assert_eq!(cuStreamQuery(main), NOT_READY);
        ok(cuStreamSynchronize_ptsz(main));
        assert!(monotonic_ns() - before >= 200 * MS);
        ok(cuGraphExecDestroy(exec));
        assert_eq!(cuGraphLaunch(exec, main), 400);
    };
    isolated_then("streams::captured_work_runs_only_with_its_graph", &[], body, |truth| {
        let count = |name: &str| truth[name].as_u64().unwrap();
        assert_eq!((count("launches"), count("captured_launches")), (0, 4));
        assert_eq!((count("graph_launches"), count("graph_kernels")), (2, 4));
    });
}

#[test]
fn waiting_for_a_capturing_stream_spoils_the_capture() {
    isolated("streams::waiting_for_a_capturing_stream_spoils_the_capture", &[], || {
        let gpu = Gpu::new();
        let (s, other, outside) = (stream(1), stream(1), event());
        ok(cuEventRecord(outside, other));
        let mut graph = 7;
        ok(cuStreamBeginCapture_v2(s, 0));
        assert_eq!(cuStreamBeginCapture_v2(s, 0), 401);
        assert_eq!(cuStreamSynchronize(s), 900);
        assert_eq!(gpu.try_launch(1, s), 901);
        assert_eq!((cuStreamEndCapture(s, Some(&mut graph)), graph), (901, 0));
        ok(cuStreamBeginCapture_v2(s, 0));
        assert_eq!(cuStreamWaitEvent(s, outside, 0), 905, "work outside of the capture");
        assert_eq!(cuStreamEndCapture(s, Some(&mut graph)), 901);
        gpu.launch(1, s);
        assert_eq!(cuStreamBeginCapture_v2(0, 0), 900, "the legacy stream cannot");
    });
}

#[test]
fn wrong_arguments_are_refused() {
    isolated("streams::wrong_arguments_are_refused", &[], || {
        let (none, image) = (std::ptr::null_mut(), b"image".as_ptr().cast());
        assert_eq!(cuStreamCreate(None, 0), 3, "not initialised");
        assert_eq!(cuInit(1), 1);
        ok(cuInit(0));
        assert_eq!(cuModuleLoadData(Some(&mut 0), image), 201, "no context");
        let gpu = Gpu::new();
        let s = stream(0);
        assert_eq!(cuStreamCreate(None, 0), 1);
        assert_eq!(cuStreamCreate(Some(&mut 0), 8), 1);
        assert_eq!(gpu.try_launch(0, s), 1, "empty grid");
        assert_eq!(cuLaunchKernel(gpu.function, 1, 1, 1, 2048, 1, 1, 0, s, none, none), 1, "block too large");
        assert_eq!(cuLaunchKernel(s, 1, 1, 1, 1, 1, 1, 0, s, none, none), 400, "a stream is no function");
        assert_eq!(cuLaunchKernelEx(None, gpu.function, none, none), 1);
        ok(cuStreamDestroy_v2(s));
        assert_eq!(gpu.try_launch(1, s), 400);
        assert_eq!(stream(0), s, "handles come again");
        assert_eq!(cuDeviceGet(Some(&mut 0), 1), 101, "one device unless told otherwise");
    });
}
