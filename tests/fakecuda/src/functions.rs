//! Every exported function, by name.

use std::ffi::c_void;

macro_rules! functions {
    ($($module:ident: $($name:ident)+;)+) => {
        /// An exported function.
        #[expect(non_camel_case_types, reason = "the driver's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Func {
            $($(#[doc = stringify!($name)] $name,)+)+
        }

        impl Func {
            /// All of them; the index of each is its number.
            pub const ALL: &[Self] = &[$($(Self::$name,)+)+];

            /// The exported name.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$name => stringify!($name),)+)+ }
            }

            /// Where it starts.
            pub(crate) fn address(self) -> *const c_void {
                match self { $($(Self::$name => $crate::$module::$name as *const c_void,)+)+ }
            }
        }
    };
}

functions! {
    init: cuInit cuDriverGetVersion;
    device: cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceTotalMem_v2 cuDeviceGetUuid cuDeviceGetUuid_v2
        cuDeviceGetPCIBusId cuDeviceGetByPCIBusId;
    context: cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuCtxCreate_v2
        cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxSetCurrent cuCtxGetCurrent cuCtxPushCurrent_v2
        cuCtxPopCurrent_v2 cuCtxGetDevice cuCtxSynchronize cuCtxSynchronize_v2;
    stream: cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamSynchronize
        cuStreamSynchronize_ptsz cuStreamQuery
        cuStreamQuery_ptsz cuStreamWaitEvent cuStreamWaitEvent_ptsz;
    event: cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventRecord_ptsz cuEventRecordWithFlags
        cuEventRecordWithFlags_ptsz cuEventSynchronize cuEventQuery cuEventElapsedTime;
    module: cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction
        cuLibraryLoadData cuLibraryUnload;
    link: cuLinkCreate_v2 cuLinkAddData_v2 cuLinkComplete cuLinkDestroy;
    launch: cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel
        cuLaunchCooperativeKernel_ptsz cuLaunchCooperativeKernelMultiDevice cuLaunch cuLaunchGrid cuLaunchGridAsync;
    graph: cuStreamBeginCapture cuStreamBeginCapture_ptsz cuStreamBeginCaptureToGraph
        cuStreamBeginCaptureToGraph_ptsz cuGraphCreate cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz
        cuStreamEndCapture cuStreamEndCapture_ptsz cuGraphInstantiate_v2 cuGraphInstantiateWithFlags
        cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphDestroy cuGraphExecDestroy cuGraphLaunch
        cuGraphLaunch_ptsz;
    memory: cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemAllocManaged cuMemFree_v2 cuMemGetInfo_v2;
    host: cuMemHostAlloc cuMemAllocHost_v2 cuMemFreeHost cuMemHostRegister_v2 cuMemHostUnregister;
    pool: cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemFreeAsync
        cuMemFreeAsync_ptsz cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute
        cuMemPoolGetAttribute cuDeviceGetDefaultMemPool;
    vmm: cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap
        cuMemRetainAllocationHandle cuMemSetAccess;
    array: cuArrayCreate_v2 cuArray3DCreate_v2 cuArrayDestroy cuMipmappedArrayCreate cuMipmappedArrayDestroy;
    ipc: cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle;
    copy: cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds cuMemcpyDtoD_v2
        cuMemcpyDtoD_v2_ptds cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2
        cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz cuMemcpyAsync cuMemcpyAsync_ptsz
        cuMemcpy cuMemcpy_ptds cuMemcpyPeer cuMemcpyPeer_ptds cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz;
    arrays: cuMemcpyAtoH_v2 cuMemcpyHtoA_v2 cuMemcpyAtoD_v2 cuMemcpyDtoA_v2 cuMemcpyAtoA_v2
        cuMemcpyAtoH_v2_ptds cuMemcpyHtoA_v2_ptds cuMemcpyAtoD_v2_ptds cuMemcpyDtoA_v2_ptds
        cuMemcpyAtoA_v2_ptds cuMemcpyAtoHAsync_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2_ptsz
        cuMemcpyHtoAAsync_v2_ptsz;
    described: cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy3D_v2 cuMemcpy3DPeer cuMemcpy2D_v2_ptds
        cuMemcpy2DUnaligned_v2_ptds cuMemcpy3D_v2_ptds cuMemcpy3DPeer_ptds cuMemcpy2DAsync_v2
        cuMemcpy3DAsync_v2 cuMemcpy3DPeerAsync cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 cuMemPrefetchAsync
        cuMemPrefetchAsync_v2 cuMemcpy2DAsync_v2_ptsz cuMemcpy3DAsync_v2_ptsz cuMemcpy3DPeerAsync_ptsz
        cuMemcpyBatchAsync_ptsz cuMemcpyBatchAsync_v2_ptsz cuMemPrefetchAsync_ptsz cuMemPrefetchAsync_v2_ptsz;
    memset: cuMemsetD8_v2 cuMemsetD2D8_v2 cuMemsetD8_v2_ptds cuMemsetD2D8_v2_ptds cuMemsetD8Async
        cuMemsetD2D8Async cuMemsetD8Async_ptsz cuMemsetD2D8Async_ptsz cuMemsetD16_v2 cuMemsetD2D16_v2
        cuMemsetD16_v2_ptds cuMemsetD2D16_v2_ptds cuMemsetD16Async cuMemsetD2D16Async cuMemsetD16Async_ptsz
        cuMemsetD2D16Async_ptsz cuMemsetD32_v2 cuMemsetD2D32_v2 cuMemsetD32_v2_ptds cuMemsetD2D32_v2_ptds
        cuMemsetD32Async cuMemsetD2D32Async cuMemsetD32Async_ptsz cuMemsetD2D32Async_ptsz;
    error: cuGetErrorName cuGetErrorString;
    resolve: cuGetProcAddress cuGetProcAddress_v2;
}

impl Func {
    /// The function of that exported name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// Which of [`Func::ALL`] it is.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
