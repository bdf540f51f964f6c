/**
 * Tiny kernels as PTX text, which the fake driver of these tests knows by name and a real one assembles.
 * - tw_affine: out[i] = 2·in[i] + 1, i < T, one thread each. tw_after: in[i] + 1, behind griddepcontrol.wait.
 * - tw_rows: out[i] = −in[i] as f32, i < R.
 * - tw_grid: out[block] = 1000 · blocks along x + blocks along y. tw_cluster: blocks of a cluster along x.
 * - tw_shared: as tw_affine with factor 1, through the last bytes of its dynamic shared memory.
 * - tw_trap: writes to no man's land. tw_hang (no body): the fake driver's watchdog ends it.
 * - tw_tile: one block copies the box of 8 rows × 16 columns (f32) at (0, 0) of its tensor map to out.
 */

const PARAMETERS = '.param .u32 T, .param .u32 R, .param .u64 in, .param .u64 out';

/** i = blockIdx.x · blockDim.x + threadIdx.x in %r1; returns if i ≥ the extent; in and out at i in %rd1 and %rd2. */
const elementwise = (extent: 'T' | 'R'): string => `
  .reg .pred %p<4>; .reg .b32 %r<10>; .reg .f32 %f<4>; .reg .b64 %rd<6>;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r1, %r2, %r3, %r4;
  ld.param.u32 %r5, [${extent}];
  setp.ge.s32 %p1, %r1, %r5;
  @%p1 bra END;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mul.wide.s32 %rd3, %r1, 4;
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
  add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;`;

const blockwise = (value: string): string => `
  .reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x;
  setp.ne.s32 %p1, %r1, 0;
  @%p1 bra END;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y;
  mad.lo.s32 %r6, %r3, %r4, %r2;
  ${value}
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.s32 %rd2, %r6, 4;
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r7;
END:
  ret;`;

/** For every device from sm_80 on. */
export const KERNELS = `.version 7.8
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 pool[];
.visible .entry tw_affine(${PARAMETERS}) {${elementwise('T')}
  ld.global.u32 %r6, [%rd1];
  mad.lo.s32 %r7, %r6, 2, 1;
  st.global.u32 [%rd2], %r7;
END:
  ret;
}
.visible .entry tw_rows(${PARAMETERS}) {${elementwise('R')}
  ld.global.u32 %r6, [%rd1];
  cvt.rn.f32.s32 %f1, %r6;
  neg.f32 %f2, %f1;
  st.global.f32 [%rd2], %f2;
END:
  ret;
}
.visible .entry tw_shared(${PARAMETERS}) {${elementwise('T')}
  mov.u32 %r8, %dynamic_smem_size;
  sub.u32 %r8, %r8, 4;
  mov.u32 %r9, pool;
  add.u32 %r9, %r9, %r8;
  ld.global.u32 %r6, [%rd1];
  st.shared.u32 [%r9], %r6;
  ld.shared.u32 %r7, [%r9];
  add.u32 %r7, %r7, 1;
  st.global.u32 [%rd2], %r7;
END:
  ret;
}
.visible .entry tw_grid(.param .u32 T, .param .u32 R, .param .u64 out) {${blockwise('mad.lo.s32 %r7, %r4, 1000, %r5;')}
}
.visible .entry tw_wide(.param .u32 T, .param .u32 R, .param .u64 out) .maxntid 256, 1, 1 {
  ret;
}
.visible .entry tw_trap(.param .u32 T, .param .u32 R, .param .u64 out) {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u64 %rd1, 64;
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry tw_hang(.param .u32 T, .param .u32 R, .param .u64 out) {
  ret;
}
`;

const CLUSTER_BLOCKS = blockwise('mov.u32 %r7, %cluster_nctaid.x;');

/** For sm_90 on. */
export const HOPPER_KERNELS = `.version 8.0
.target sm_90
.address_size 64
.visible .entry tw_after(${PARAMETERS}) {${elementwise('T')}
  griddepcontrol.wait;
  ld.global.u32 %r6, [%rd1];
  add.s32 %r7, %r6, 1;
  st.global.u32 [%rd2], %r7;
END:
  ret;
}
.visible .entry tw_cluster(.param .u32 T, .param .u32 R, .param .u64 out) {${CLUSTER_BLOCKS}
}
.visible .entry tw_tile(.param .u32 T, .param .u32 R, .param .u64 out, .param .align 64 .b8 map[128]) {
  .reg .pred %p<3>; .reg .b32 %r<10>; .reg .b64 %rd<6>;
  .shared .align 128 .b8 box[512];
  .shared .align 8 .b8 barrier[8];
  mov.u32 %r1, %tid.x; mov.u32 %r2, box; mov.u32 %r3, barrier; mov.u32 %r6, 0;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  setp.ne.s32 %p1, %r1, 0;
  @%p1 bra WAIT;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%r3], 512;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r6, %r6}], [%r3];
WAIT:
  bar.sync 0;
TRY:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
  @!%p2 bra TRY;
  mul.lo.u32 %r4, %r1, 4;
  add.u32 %r5, %r2, %r4;
  ld.shared.u32 %r7, [%r5];
  ld.param.u64 %rd3, [out];
  cvta.to.global.u64 %rd3, %rd3;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd3, %rd3, %rd4;
  st.global.u32 [%rd3], %r7;
  ret;
}
`;
