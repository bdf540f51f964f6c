import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { recognizeHeadProducts } from '../../passes/recognizeHeadProducts.js';
import { check, checkUnchanged, edit, parse, sameMeaning } from './support.js';

const recognize = (graph: Graph): Graph => {
  const result = recognizeHeadProducts(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

const PRODUCT = `
  func @g(%x: f32[T, 2, 4]) -> (f32[2, T, 3]) {
    weight @w0 : f32[3, 4]
    weight @w1 : f32[3, 4]
    %x_by_head = transpose(%x) {order = [1, 0, 2]} : f32[2, T, 4]
    %all = concat(@w0, @w1) {axis = 0} : f32[6, 4]
    %by_head = reshape(%all) {shape = [2, 3, 4]} : f32[2, 3, 4]
    %turned = transpose(%by_head) {order = [0, 2, 1]} : f32[2, 4, 3]
    %product = matmul(%x_by_head, %turned) : f32[2, T, 3] at "layers.0.attention"
    return %product
  }
`;

describe('recognizeHeadProducts', () => {
  it('makes one node of products of heads with matrices of their own', () => {
    check(
      PRODUCT,
      recognize,
      `
      func @g(%x: f32[T, 2, 4]) -> (f32[2, T, 3]) {
        weight @w0 : f32[3, 4]
        weight @w1 : f32[3, 4]
        %all = concat(@w0, @w1) {axis = 0} : f32[6, 4]
        %product_by_token = head_linear(%x, %all) : f32[T, 2, 3] at "layers.0.attention"
        %product = transpose(%product_by_token) {order = [1, 0, 2]} : f32[2, T, 3] at "layers.0.attention"
        return %product
      }
    `,
    );
  });

  it('takes rows that lie by heads', () => {
    const byHead = edit(
      PRODUCT,
      ['%x: f32[T, 2, 4]', '%x_by_head: f32[2, T, 4]'],
      ['    %x_by_head = transpose(%x) {order = [1, 0, 2]} : f32[2, T, 4]\n', ''],
    );
    const result = recognize(parse(byHead));
    expect(result.nodes.map(({ op }) => op)).toEqual(['concat', 'transpose', 'head_linear', 'transpose']);
    sameMeaning(parse(byHead), result);
  });

  it('leaves matrices that are computed, or are none of the heads', () => {
    const scaled = edit(
      PRODUCT,
      ['reshape(%all)', 'reshape(%twice)'],
      ['    %by_head', '    %twice = add(%all, %all) : f32[6, 4]\n    %by_head'],
    );
    checkUnchanged(scaled, recognizeHeadProducts);
    const halves = edit(
      PRODUCT,
      ['weight @w0 : f32[3, 4]', 'weight @w0 : f32[2, 4]'],
      ['weight @w1 : f32[3, 4]', 'weight @w1 : f32[2, 4]\n    weight @w2 : f32[2, 4]'],
      ['concat(@w0, @w1)', 'concat(@w0, @w1, @w2)'],
    );
    checkUnchanged(halves, recognizeHeadProducts);
  });
});
