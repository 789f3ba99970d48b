//! Every way to copy.

use crate::driver::{Arguments, address};

/// What a copy has to do with.
pub(crate) struct Place {
    /// Device memory.
    pub(crate) device: u64,
    /// Host memory.
    pub(crate) host: u64,
    /// Stream.
    pub(crate) stream: u64,
}

/// Which way the call says it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the device.
    In,
    /// To the host.
    Out,
    /// Within the device.
    Within,
    /// To the device, which only the addresses tell.
    UntoldIn,
    /// To the host, likewise.
    UntoldOut,
}

/// A function with how it is called for so many bytes.
pub(crate) type Copy = (&'static str, Way, fn(&Place, u64) -> Arguments);

fn fill<const N: usize>(given: [u64; N]) -> Arguments {
    let mut all = [0; 11];
    all[..N].copy_from_slice(&given);
    all
}

fn in_(p: &Place, n: u64) -> Arguments {
    fill([p.device, p.host, n, p.stream])
}

fn out(p: &Place, n: u64) -> Arguments {
    fill([p.host, p.device, n, p.stream])
}

fn within(p: &Place, n: u64) -> Arguments {
    fill([p.device, p.device + n, n, p.stream])
}

fn peer(p: &Place, n: u64) -> Arguments {
    fill([p.device, 0, p.device + n, 0, n, p.stream])
}

fn array_in(p: &Place, n: u64) -> Arguments {
    fill([p.device, 8, p.host, n, p.stream])
}

fn array_out(p: &Place, n: u64) -> Arguments {
    fill([p.host, p.device, 8, n, p.stream])
}

fn from_array(p: &Place, n: u64) -> Arguments {
    fill([p.device, p.device, 8, n])
}

fn to_array(p: &Place, n: u64) -> Arguments {
    fill([p.device, 8, p.device, n])
}

fn array_to_array(p: &Place, n: u64) -> Arguments {
    fill([p.device, 8, p.device, 16, n])
}

fn prefetch(p: &Place, n: u64) -> Arguments {
    fill([p.device, n, 0, p.stream])
}

fn prefetch_2(p: &Place, n: u64) -> Arguments {
    fill([p.device, n, 0, 0, p.stream])
}

/// A structure that lives as long as the program: there are not many of these calls.
fn leaked<const N: usize>(words: [u64; N]) -> u64 {
    address(Box::leak(Box::new(words)).as_ptr())
}

const HOST: u64 = 1;
const DEVICE: u64 = 2;

/// `CUDA_MEMCPY2D`: two rows of half the bytes.
fn plane(p: &Place, [from, to]: [u64; 2], n: u64) -> Arguments {
    let (h, d) = (p.host, p.device);
    let words = [0, 0, from, h, d, d, 0, 0, 0, to, h, d, d, 0, n / 2, 2];
    fill([leaked(words), p.stream])
}

/// `CUDA_MEMCPY3D`: two slices of two rows of a quarter of the bytes.
fn volume(p: &Place, [from, to]: [u64; 2], n: u64) -> Arguments {
    let (h, d) = (p.host, p.device);
    let words = [0, 0, 0, 0, from, h, d, d, 0, 0, 0, 0, 0, 0, 0, to, h, d, d, 0, 0, 0, n / 4, 2, 2];
    fill([leaked(words), p.stream])
}

fn plane_in(p: &Place, n: u64) -> Arguments {
    plane(p, [HOST, DEVICE], n)
}

fn plane_out(p: &Place, n: u64) -> Arguments {
    plane(p, [DEVICE, HOST], n)
}

fn plane_within(p: &Place, n: u64) -> Arguments {
    plane(p, [DEVICE, DEVICE], n)
}

fn volume_in(p: &Place, n: u64) -> Arguments {
    volume(p, [HOST, DEVICE], n)
}

fn volume_out(p: &Place, n: u64) -> Arguments {
    volume(p, [DEVICE, HOST], n)
}

fn volume_within(p: &Place, n: u64) -> Arguments {
    volume(p, [DEVICE, DEVICE], n)
}

/// Four copies of a quarter of the bytes each.
fn batch_lists(p: &Place, n: u64) -> [u64; 3] {
    let (to, from) = ([p.device; 4], [p.host; 4]);
    [leaked(to), leaked(from), leaked([n / 4; 4])]
}

fn batch(p: &Place, n: u64) -> Arguments {
    let [to, from, sizes] = batch_lists(p, n);
    fill([to, from, sizes, 4, 0, 0, 0, 0, p.stream])
}

fn batch_2(p: &Place, n: u64) -> Arguments {
    let [to, from, sizes] = batch_lists(p, n);
    fill([to, from, sizes, 4, 0, 0, 0, p.stream])
}

/// All of them. Of sizes that are multiples of four.
pub(crate) const COPIES: &[Copy] = &[
    ("cuMemcpyHtoD_v2", Way::In, in_),
    ("cuMemcpyHtoD_v2_ptds", Way::In, in_),
    ("cuMemcpyDtoH_v2", Way::Out, out),
    ("cuMemcpyDtoH_v2_ptds", Way::Out, out),
    ("cuMemcpyDtoD_v2", Way::Within, within),
    ("cuMemcpyDtoD_v2_ptds", Way::Within, within),
    ("cuMemcpyHtoDAsync_v2", Way::In, in_),
    ("cuMemcpyHtoDAsync_v2_ptsz", Way::In, in_),
    ("cuMemcpyDtoHAsync_v2", Way::Out, out),
    ("cuMemcpyDtoHAsync_v2_ptsz", Way::Out, out),
    ("cuMemcpyDtoDAsync_v2", Way::Within, within),
    ("cuMemcpyDtoDAsync_v2_ptsz", Way::Within, within),
    ("cuMemcpy", Way::UntoldIn, in_),
    ("cuMemcpy_ptds", Way::UntoldOut, out),
    ("cuMemcpyAsync", Way::UntoldOut, out),
    ("cuMemcpyAsync_ptsz", Way::UntoldIn, in_),
    ("cuMemcpyPeer", Way::Within, peer),
    ("cuMemcpyPeer_ptds", Way::Within, peer),
    ("cuMemcpyPeerAsync", Way::Within, peer),
    ("cuMemcpyPeerAsync_ptsz", Way::Within, peer),
    ("cuMemcpyAtoH_v2", Way::Out, array_out),
    ("cuMemcpyAtoH_v2_ptds", Way::Out, array_out),
    ("cuMemcpyAtoHAsync_v2", Way::Out, array_out),
    ("cuMemcpyAtoHAsync_v2_ptsz", Way::Out, array_out),
    ("cuMemcpyHtoA_v2", Way::In, array_in),
    ("cuMemcpyHtoA_v2_ptds", Way::In, array_in),
    ("cuMemcpyHtoAAsync_v2", Way::In, array_in),
    ("cuMemcpyHtoAAsync_v2_ptsz", Way::In, array_in),
    ("cuMemcpyAtoD_v2", Way::Within, from_array),
    ("cuMemcpyAtoD_v2_ptds", Way::Within, from_array),
    ("cuMemcpyDtoA_v2", Way::Within, to_array),
    ("cuMemcpyDtoA_v2_ptds", Way::Within, to_array),
    ("cuMemcpyAtoA_v2", Way::Within, array_to_array),
    ("cuMemcpyAtoA_v2_ptds", Way::Within, array_to_array),
    ("cuMemcpy2D_v2", Way::In, plane_in),
    ("cuMemcpy2D_v2_ptds", Way::Out, plane_out),
    ("cuMemcpy2DUnaligned_v2", Way::Within, plane_within),
    ("cuMemcpy2DUnaligned_v2_ptds", Way::Out, plane_out),
    ("cuMemcpy2DAsync_v2", Way::Out, plane_out),
    ("cuMemcpy2DAsync_v2_ptsz", Way::In, plane_in),
    ("cuMemcpy3D_v2", Way::In, volume_in),
    ("cuMemcpy3D_v2_ptds", Way::Out, volume_out),
    ("cuMemcpy3DAsync_v2", Way::Out, volume_out),
    ("cuMemcpy3DAsync_v2_ptsz", Way::In, volume_in),
    ("cuMemcpy3DPeer", Way::Within, volume_within),
    ("cuMemcpy3DPeer_ptds", Way::Within, volume_within),
    ("cuMemcpy3DPeerAsync", Way::Within, volume_within),
    ("cuMemcpy3DPeerAsync_ptsz", Way::Within, volume_within),
    ("cuMemcpyBatchAsync", Way::UntoldIn, batch),
    ("cuMemcpyBatchAsync_ptsz", Way::UntoldIn, batch),
    ("cuMemcpyBatchAsync_v2", Way::UntoldIn, batch_2),
    ("cuMemcpyBatchAsync_v2_ptsz", Way::UntoldIn, batch_2),
    ("cuMemPrefetchAsync", Way::Within, prefetch),
    ("cuMemPrefetchAsync_ptsz", Way::Within, prefetch),
    ("cuMemPrefetchAsync_v2", Way::Within, prefetch_2),
    ("cuMemPrefetchAsync_v2_ptsz", Way::Within, prefetch_2),
];
