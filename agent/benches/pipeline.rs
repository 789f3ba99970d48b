//! Records a second through decode to stage, on one core.
//!
//! The records are those of a real run (`tests/recordings`), each time through an empty pipeline. Quarters of it show
//! that the cost is linear in the number of records: the rate must not fall with the length. With
//! `PIPELINE_RECORDING=FILE` another recording is taken.

#![expect(missing_docs, reason = "criterion's macro makes a function without any")]

use std::{
    fs::File,
    hint::black_box,
    io::BufReader,
    path::{Path, PathBuf},
};

use agent::{
    pipeline::{Pipeline, Settings},
    source::recording::Reader,
};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn recording() -> PathBuf {
    let committed = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/demo-split.slrec");
    std::env::var_os("PIPELINE_RECORDING").map_or_else(committed, PathBuf::from)
}

fn records() -> Vec<Vec<u8>> {
    let file = File::open(recording()).expect("the recording can be opened");
    let mut reader = Reader::new(BufReader::new(file)).expect("it is a recording of this ABI");
    let (mut records, mut record) = (Vec::new(), Vec::new());
    while reader.read(&mut record).expect("the recording is whole") {
        records.push(record.clone());
    }
    records
}

fn run(mut records: Vec<Vec<u8>>) -> usize {
    let (mut pipeline, mut outputs, mut count) = (Pipeline::new(Settings {}), Vec::new(), 0);
    for record in &mut records {
        pipeline.process(record, &mut outputs);
        count += outputs.drain(..).map(black_box).count();
    }
    count
}

fn pipeline(criterion: &mut Criterion) {
    let records = records();
    let mut group = criterion.benchmark_group("pipeline");
    for quarters in [1, 2, 4] {
        let part = &records[..records.len() * quarters / 4];
        group.throughput(Throughput::Elements(part.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(part.len()), |bench| {
            // The pipeline masks records in place, so each run has its own.
            bench.iter_batched(|| part.to_vec(), run, BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
