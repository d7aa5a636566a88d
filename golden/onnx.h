// SPDX-License-Identifier: Apache-2.0
// A case as an ONNX backend test: model.onnx with one Attention node of opset 23, and its inputs and output as .pb.
#pragma once

#include <string>
#include <vector>

#include "golden/golden_case.h"
#include "golden/pack.h"

namespace attest::golden {

/// Why the operator cannot say the case; empty where it can: forward of one length for all sequences, f32, f16 or
/// bf16 in and out, no dropout, no row that sees nothing, no softcap together with a mask or bias.
std::string why_not_onnx(const GoldenCase& golden);

/// FOLDER/model.onnx and FOLDER/test_data_set_0/{input_N,output_0}.pb. Masks become is_causal where causal is all
/// there is and both alignments agree, else a boolean attn_mask, or an additive one where there is a bias.
/// Throws InvalidRequest("onnx", ...) where why_not_onnx() says why not.
std::vector<NewFile> onnx_files(const GoldenCase& golden, const std::string& folder);

}  // namespace attest::golden
