"""Models of ECP5's cells in Verilog, for what synthesis makes of the core and for a board's whole design.

They say what the cells do, by Lattice's FPGA-TN-02200 (sysCLOCK), FPGA-TN-02204 (memory), FPGA-TN-02205 (sysDSP) and
FPGA-TN-02032 (sysIO), without times, for the modes that are used; a mode that is not modelled ends the simulation.
"""

__all__ = ["NETLIST_CELLS", "TOP_CELLS"]

_LOGIC = """\
module LUT4(input A, B, C, D, output Z);
  parameter [15:0] INIT = 16'h0000;
  assign Z = INIT[{D, C, B, A}];
endmodule

// two bits of a carry chain: each LUT's result is also what lets a carry through; else A and B alone decide
module CCU2C(input CIN, A0, B0, C0, D0, A1, B1, C1, D1, output S0, S1, COUT);
  parameter [15:0] INIT0 = 16'h0000;
  parameter [15:0] INIT1 = 16'h0000;
  parameter INJECT1_0 = "YES";
  parameter INJECT1_1 = "YES";
  wire through0 = INIT0[{D0, C0, B0, A0}], through1 = INIT1[{D1, C1, B1, A1}];
  wire make0 = INJECT1_0 == "NO" && INIT0[{2'b00, B0, A0}], make1 = INJECT1_1 == "NO" && INIT1[{2'b00, B1, A1}];
  wire middle = through0 ? CIN : make0;
  assign S0 = through0 ^ (INJECT1_0 == "NO" && CIN);
  assign S1 = through1 ^ (INJECT1_1 == "NO" && middle);
  assign COUT = through1 ? middle : make1;
endmodule

module TRELLIS_FF(input CLK, LSR, CE, DI, M, output reg Q);
  parameter GSR = "ENABLED";
  parameter CEMUX = "1";
  parameter CLKMUX = "CLK";
  parameter LSRMUX = "LSR";
  parameter SRMODE = "LSR_OVER_CE";
  parameter REGSET = "RESET";
  parameter LSRMODE = "LSR";
  localparam VALUE = REGSET == "SET";
  wire enable = CEMUX == "1" || (CEMUX == "INV" ? !CE : CE);
  wire set = LSRMUX == "INV" ? !LSR : LSR;
  initial begin
    Q = VALUE;
    if (CLKMUX != "CLK" || SRMODE != "LSR_OVER_CE" || LSRMODE != "LSR") begin
      $display("TRELLIS_FF: a mode that is not modelled"); $finish;
    end
  end
  always @(posedge CLK) if (set) Q <= VALUE; else if (enable) Q <= DI;
endmodule

module DCCA(input CLKI, CE, output CLKO);
  assign CLKO = CLKI;  // CE is tied high
endmodule

module TRELLIS_DPR16X4(input [3:0] DI, WAD, RAD, input WRE, WCK, output [3:0] DO);
  parameter WCKMUX = "WCK";
  parameter WREMUX = "WRE";
  parameter [63:0] INITVAL = 64'h0;
  reg [3:0] words [0:15];
  integer place;
  initial begin
    for (place = 0; place < 16; place = place + 1) words[place] = INITVAL[4 * place +: 4];
    if (WCKMUX != "WCK" || WREMUX != "WRE") begin
      $display("TRELLIS_DPR16X4: a mode that is not modelled"); $finish;
    end
  end
  always @(posedge WCK) if (WRE) words[WAD] <= DI;
  assign DO = words[RAD];
endmodule
"""


def _scalars(direction: str, name: str, width: int) -> str:
    """Ports of single bits, as the cells have them."""
    return f"{direction} " + ", ".join(f"{name}{bit}" for bit in range(width))


def _bus(name: str, width: int) -> str:
    return "{" + ", ".join(f"{name}{bit}" for bit in reversed(range(width))) + "}"


def _multiplier() -> str:
    """MULT18X18D, with registers for the factors and for the product, or without."""
    names = ("INPUTA", "INPUTB", "OUTPUT")
    parameters = "\n".join(
        f'  parameter REG_{name}_{part} = "{default}";'
        for name in (*names, "PIPELINE")
        for part, default in (("CLK", "NONE"), ("CE", "CE0"), ("RST", "RST0"))
    )
    check = " || ".join(
        f'REG_{name}_CLK != "NONE" && (REG_{name}_CLK != "CLK0" || REG_{name}_CE != "CE0" || REG_{name}_RST != "RST0")'
        for name in names
    )
    return f"""
module MULT18X18D({_scalars("input", "A", 18)}, {_scalars("input", "B", 18)}, {_scalars("input", "C", 18)},
  input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
  input CLK0, CLK1, CLK2, CLK3, CE0, CE1, CE2, CE3, RST0, RST1, RST2, RST3, {_scalars("output", "P", 36)});
{parameters}
  parameter RESETMODE = "SYNC";
  reg signed [18:0] held_a, held_b;
  reg signed [35:0] held_product;
  wire signed [18:0] in_a = {{SIGNEDA & A17, {_bus("A", 18)}}}, in_b = {{SIGNEDB & B17, {_bus("B", 18)}}};
  wire signed [18:0] a = REG_INPUTA_CLK == "NONE" ? in_a : held_a, b = REG_INPUTB_CLK == "NONE" ? in_b : held_b;
  wire signed [37:0] product = a * b;
  always @(posedge CLK0) begin
    if (RST0) begin held_a <= 0; held_b <= 0; held_product <= 0; end
    else if (CE0) begin held_a <= in_a; held_b <= in_b; held_product <= product[35:0]; end
  end
  assign {_bus("P", 36)} = REG_OUTPUT_CLK == "NONE" ? product[35:0] : held_product;
  initial if (REG_PIPELINE_CLK != "NONE" || RESETMODE != "SYNC" || {check}) begin
    $display("MULT18X18D: a mode that is not modelled"); $finish;
  end
endmodule
"""


def _memory() -> str:
    """DP16KD: 2048 places of nine bits, of which narrow ports use eight. With 36 bits, port A writes, its upper half at
    port B's data pins, and port B reads, its lower half at port A's. What a port reads of a place that the other writes
    in the same cycle is not defined; here it is wrong."""
    ports = ", ".join(
        f"{_scalars('input', f'DI{port}', 18)}, {_scalars('input', f'AD{port}', 14)}, "
        f"{_scalars('input', f'CS{port}', 3)}, input CLK{port}, CE{port}, OCE{port}, WE{port}, RST{port}, "
        f"{_scalars('output', f'DO{port}', 18)}"
        for port in "AB"
    )
    parameters = "\n".join(
        f"  parameter DATA_WIDTH_{port} = 18;\n"
        f'  parameter REGMODE_{port} = "NOREG";\n  parameter WRITEMODE_{port} = "NORMAL";\n'
        f'  parameter CSDECODE_{port} = "0b000";\n  parameter CLK{port}MUX = "CLK{port}";'
        for port in "AB"
    )
    initial = "\n".join(f"  parameter [319:0] INITVAL_{index:02X} = 320'h0;" for index in range(64))
    fill = "\n".join(
        f"    for (place = 0; place < 32; place = place + 1) bytes[{32 * index} + place] = "
        f"INITVAL_{index:02X}[20 * (place / 2) + 9 * (place % 2) +: 9];"
        for index in range(64)
    )
    return f"""
module DP16KD({ports});
{parameters}
  parameter RESETMODE = "SYNC";
  parameter ASYNC_RESET_RELEASE = "SYNC";
  parameter GSR = "DISABLED";
{initial}
  reg [8:0] bytes [0:2047];
  integer place;
  initial begin
{fill}
    if (REGMODE_A != "NOREG" || REGMODE_B != "NOREG" || CLKAMUX != "CLKA" || CLKBMUX != "CLKB") begin
      $display("DP16KD: a mode that is not modelled"); $finish;
    end
  end
  wire [35:0] wide = {{bytes[{{addressB[13:5], 2'd3}}], bytes[{{addressB[13:5], 2'd2}}],
    bytes[{{addressB[13:5], 2'd1}}], bytes[{{addressB[13:5], 2'd0}}]}};
  reg [17:0] low = 0;
  assign {_bus("DOA", 18)} = DATA_WIDTH_B == 36 ? low : outA;
  assign {_bus("DOB", 18)} = outB;
  always @(posedge CLKB) if (DATA_WIDTH_B == 36 && RSTB) low <= 0; else if (CEB) low <= wide[17:0] ^ {{18{{clashB}}}};
  localparam PLACE = DATA_WIDTH_A == 36 ? 5 : DATA_WIDTH_A == 18 ? 4 : DATA_WIDTH_A == 9 ? 3 : DATA_WIDTH_A / 2;
  wire same = addressA >> PLACE == addressB >> PLACE, clashA = writesB && same, clashB = writesA && same;
{_port("A")}{_port("B")}
endmodule
"""


def _port(port: str) -> str:
    """One port of DP16KD: what it reads and writes by its width."""
    place = f"address{port}[13:3]"
    upper, lower = (f"{{address{port}[13:4], 1'b{half}}}" for half in (1, 0))
    return f"""
  wire [13:0] address{port} = {_bus(f"AD{port}", 14)};
  wire [17:0] in{port} = {_bus(f"DI{port}", 18)};
  reg [17:0] out{port} = 0;
  // wide words have enables for their bytes in the address
  wire writes{port} = CE{port} && WE{port} && (DATA_WIDTH_{port} == 36 ? |address{port}[3:0]
    : DATA_WIDTH_{port} != 18 || |address{port}[1:0]);
  wire [8:0] byte{port} = bytes[{place}];
  wire [17:0] now{port} = DATA_WIDTH_{port} == 36 ? wide[35:18]
    : DATA_WIDTH_{port} == 18 ? {{bytes[{upper}], bytes[{lower}]}}
    : DATA_WIDTH_{port} == 9 ? {{9'b0, byte{port}}}
    : DATA_WIDTH_{port} == 4 ? {{14'b0, byte{port}[{{address{port}[2], 2'b0}} +: 4]}}
    : DATA_WIDTH_{port} == 2 ? {{16'b0, byte{port}[{{address{port}[2:1], 1'b0}} +: 2]}}
    : {{17'b0, byte{port}[address{port}[2:0]]}};
  wire [17:0] read{port} = now{port} ^ {{18{{clash{port}}}}};
  always @(posedge CLK{port}) begin
    if (CE{port} && WE{port}) case (DATA_WIDTH_{port})
      36: begin
        if (address{port}[0]) bytes[{{address{port}[13:5], 2'd0}}] <= inA[8:0];
        if (address{port}[1]) bytes[{{address{port}[13:5], 2'd1}}] <= inA[17:9];
        if (address{port}[2]) bytes[{{address{port}[13:5], 2'd2}}] <= inB[8:0];
        if (address{port}[3]) bytes[{{address{port}[13:5], 2'd3}}] <= inB[17:9];
      end
      18: begin
        if (address{port}[0]) bytes[{lower}] <= in{port}[8:0];
        if (address{port}[1]) bytes[{upper}] <= in{port}[17:9];
      end
      9: bytes[{place}] <= in{port}[8:0];
      4: bytes[{place}][{{address{port}[2], 2'b0}} +: 4] <= in{port}[3:0];
      2: bytes[{place}][{{address{port}[2:1], 1'b0}} +: 2] <= in{port}[1:0];
      default: bytes[{place}][address{port}[2:0]] <= in{port}[0];
    endcase
    if (RST{port}) out{port} <= 0;
    else if (CE{port} && (!WE{port} || WRITEMODE_{port} == "READBEFOREWRITE")) out{port} <= read{port};
    else if (CE{port} && WRITEMODE_{port} == "WRITETHROUGH") out{port} <= in{port};
    if (RST{port} && RESETMODE != "SYNC") begin
      $display("DP16KD: an asynchronous reset, which is not modelled"); $finish;
    end
  end
"""


_PINS = """\
module IB(input I, output O);
  assign O = I;
endmodule

module OBZ(input I, T, output O);
  assign O = T ? 1'bz : I;
endmodule

module BB(input I, T, output O, inout B);
  assign B = T ? 1'bz : I;
  assign O = B;
endmodule

module FD1S3AX(input D, CK, output reg Q);
  parameter GSR = "ENABLED";
  initial Q = 0;
  always @(posedge CK) Q <= D;
endmodule

module IFS1P3DX(input D, SP, SCLK, CD, output reg Q);
  initial Q = 0;
  always @(posedge SCLK) if (CD) Q <= 0; else if (SP) Q <= D;
endmodule

module OFS1P3DX(input D, SP, SCLK, CD, output reg Q);
  initial Q = 0;
  always @(posedge SCLK) if (CD) Q <= 0; else if (SP) Q <= D;
endmodule

// used for clocks alone: both inputs are constant
module ODDRX1F(input D0, D1, SCLK, RST, output Q);
  assign Q = SCLK ? D0 : D1;
endmodule
"""

_PLL = """\
// whatever the dividers say, the input is four times the output's clock: its edges are those of all outputs
module EHXPLLL(input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG, PLLWAKESYNC,
  ENCLKOP, ENCLKOS, ENCLKOS2, output reg CLKOP, CLKOS, CLKOS2, output LOCK);
  parameter PLLRST_ENA = "DISABLED";
  parameter INTFB_WAKE = "DISABLED";
  parameter STDBY_ENABLE = "DISABLED";
  parameter DPHASE_SOURCE = "DISABLED";
  parameter OUTDIVIDER_MUXA = "DIVA";
  parameter OUTDIVIDER_MUXB = "DIVB";
  parameter FEEDBK_PATH = "CLKOP";
  parameter CLKI_DIV = 1;
  parameter CLKFB_DIV = 1;
  parameter CLKOP_ENABLE = "ENABLED";
  parameter CLKOP_DIV = 1;
  parameter CLKOP_CPHASE = 0;
  parameter CLKOP_FPHASE = 0;
  parameter CLKOS_ENABLE = "ENABLED";
  parameter CLKOS_DIV = 1;
  parameter CLKOS_CPHASE = 0;
  parameter CLKOS_FPHASE = 0;
  parameter CLKOS2_ENABLE = "DISABLED";
  parameter CLKOS2_DIV = 1;
  parameter CLKOS2_CPHASE = 0;
  parameter CLKOS2_FPHASE = 0;
  localparam TWICE = 2 * CLKOS2_DIV == CLKOP_DIV && CLKOS2_CPHASE == CLKOS2_DIV - 1 && CLKOP_CPHASE == CLKOP_DIV - 1
    && CLKOS2_FPHASE == 0 && CLKOP_FPHASE == 0;
  localparam EIGHTHS = 8 * (CLKOS_CPHASE - (CLKOS_DIV - 1)) + CLKOS_FPHASE, SHIFTED_TWICE = 2 * CLKOS_DIV == CLKOP_DIV;
  reg [1:0] quarter = 0;
  reg [4:0] locking = 0;
  assign LOCK = &locking;
  initial begin
    CLKOP = 0;
    CLKOS = 0;
    CLKOS2 = 0;
    if (FEEDBK_PATH != "CLKOP" || CLKOP_DIV != CLKOS_DIV && !SHIFTED_TWICE
      || EIGHTHS != (SHIFTED_TWICE ? 4 : 2) * CLKOS_DIV
      || CLKOP_CPHASE != CLKOP_DIV - 1 || CLKOP_FPHASE != 0
      || CLKOS2_ENABLE == "ENABLED" && !TWICE) begin
      $display("EHXPLLL: a mode that is not modelled"); $finish;
    end
  end
  always @(posedge CLKI) begin
    quarter <= quarter + 1;
    CLKOP <= !quarter[1];
    CLKOS <= SHIFTED_TWICE ? quarter[0] : quarter[1] ^ quarter[0];
    CLKOS2 <= CLKOS2_ENABLE == "ENABLED" && !quarter[0];
    if (quarter == 3 && !LOCK) locking <= locking + 1;
  end
endmodule
"""

NETLIST_CELLS = _LOGIC + _multiplier() + _memory()
"""Of what synthesis leaves of a core."""
TOP_CELLS = _multiplier() + _PINS + _PLL
"""Of what a board's design instantiates before synthesis."""
